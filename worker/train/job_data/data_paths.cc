// Paths of a list file are taken as the job's own: relative to the data root.
#include "worker/train/job_data/data_paths.h"

#include <utility>

#include "common/base/files.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"

namespace mt::train {
namespace {

StatusOr<std::string> BelowDataRoot(const std::string& data_root, const std::string& relative) {
  RETURN_IF_ERROR(spec::CheckRelative(relative));
  if (data_root.empty()) {
    return base::FailedPrecondition("the worker has no --data-root, below which {} would lie",
                                    relative);
  }
  return base::JoinPath(data_root, relative);
}

StatusOr<data::DataPath> ReadList(const std::string& data_root, const std::string& file) {
  ASSIGN_OR_RETURN(const std::string path, BelowDataRoot(data_root, file));
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, spec::BelowRoot(data_root)));
  auto list = data::ParseDataPath(text);
  if (!list.ok()) return base::Annotate(list.status(), path);
  for (data::DataMember& member : *list) {
    auto prefix = BelowDataRoot(data_root, member.prefix);
    if (!prefix.ok()) return base::Annotate(prefix.status(), path);
    member.prefix = *std::move(prefix);
  }
  return list;
}

}  // namespace

StatusOr<data::DataPath> DataPathOf(const std::string& data_root, const megatrain::v1::JobSpec& job,
                                    spec::Split split) {
  data::DataPath path;
  for (const spec::DataSource& source : spec::DataSources(job, split)) {
    if (!source.file.empty()) return ReadList(data_root, source.file);
    ASSIGN_OR_RETURN(std::string prefix, BelowDataRoot(data_root, source.prefix));
    path.push_back({.prefix = std::move(prefix), .weight = source.weight});
  }
  return path;
}

data::SplitBy SplitByOf(const megatrain::v1::JobSpec& job) {
  const bool tokens = job.data().split_by() == megatrain::v1::Data::SPLIT_BY_TOKENS;
  return tokens ? data::SplitBy::kTokens : data::SplitBy::kDocuments;
}

}  // namespace mt::train
