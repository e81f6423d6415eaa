// The new label is written before the old one goes: at no moment is the tag without a checkpoint.
#include "worker/checkpoint/format/label.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

std::string LabelPath(const std::string& folder) { return base::JoinPath(folder, kLabelName); }

}  // namespace

std::string ToJson(const Label& label) {
  const json out = {{"format", "megatrain-tag"},
                    {"version", kLabelVersion},
                    {"tag", label.tag},
                    {"meta", label.meta}};
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

StatusOr<Label> ParseLabel(std::string_view text) {
  const json in = ParseJson(text);
  try {
    if (in.at("format").get<std::string>() != "megatrain-tag")
      return base::DataLoss("not a checkpoint's label");
    if (const int64_t version = Integer(in.at("version")); version > kLabelVersion) {
      return base::FailedPrecondition("a label of version {}, this program reads up to {}", version,
                                      kLabelVersion);
    }
    return Label{.tag = in.at("tag").get<std::string>(),
                 .meta = in.at("meta").get<std::map<std::string, std::string>>()};
  } catch (const json::exception& error) {
    return base::DataLoss("not a checkpoint's label: {}", error.what());
  }
}

StatusOr<Label> ReadLabel(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(LabelPath(folder)));
  return ParseLabel(text);
}

bool HasLabel(const std::string& folder) {
  struct stat info {};
  return ::lstat(LabelPath(folder).c_str(), &info) == 0 || errno != ENOENT;
}

Status RemoveLabel(const std::string& folder) {
  const std::string path = LabelPath(folder);
  if (::unlink(path.c_str()) != 0) return base::ErrnoError(errno, "remove " + path);
  return base::SyncDir(folder);
}

Status WriteLabel(const std::string& directory, const CheckpointId& id, const Label& label) {
  const std::string folder = base::JoinPath(directory, FolderName(id));
  if (!base::Exists(folder)) return base::NotFound("there is no checkpoint {}", folder);
  RETURN_IF_ERROR(base::WriteFileAtomic(LabelPath(folder), ToJson(label)));
  if (label.tag.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ListCheckpoints(directory));
  for (const CheckpointId& other : all) {
    if (other == id) continue;
    const std::string path = base::JoinPath(directory, FolderName(other));
    const auto had = ReadLabel(path);
    if (!had.ok() || had->tag != label.tag) continue;
    const Status removed = RemoveLabel(path);
    if (!absl::IsNotFound(removed)) RETURN_IF_ERROR(removed);
  }
  return OkStatus();
}

StatusOr<CheckpointId> FindByTag(const std::string& directory, std::string_view tag) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ListCheckpoints(directory));
  std::vector<std::string> tags;
  for (auto id = all.rbegin(); id != all.rend(); ++id) {
    const auto label = ReadLabel(base::JoinPath(directory, FolderName(*id)));
    if (!label.ok() || label->tag.empty()) continue;
    if (label->tag == tag) return *id;
    tags.push_back(label->tag);
  }
  return base::NotFound("no checkpoint in {} has the tag {}; there are: {}", directory, tag,
                        tags.empty() ? "none" : fmt::format("{}", fmt::join(tags, ", ")));
}

}  // namespace mt::checkpoint
