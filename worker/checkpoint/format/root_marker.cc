// The marker is written to a temporary file and then linked to its name, which fails where the name
// is taken: unlike a rename, a link cannot replace the marker of whoever came first. File systems
// without hard links have a rename that does not replace.
#include "worker/checkpoint/format/root_marker.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

constexpr size_t kMaxIdBytes = 64;

bool IsId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes &&
         std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

// OK if the root is a folder.
Status CheckRoot(const std::string& root) {
  struct stat info {};
  if (::stat(root.c_str(), &info) != 0) return base::ErrnoError(errno, root);
  return S_ISDIR(info.st_mode) ? OkStatus() : base::NotFound("{} is no folder", root);
}

// True if the errno says that the file system has no such operation.
bool IsUnsupported(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL ||
         error == EMLINK;
}

// Gives the file its final name unless that is taken. 0, or the errno.
int GiveName(const std::string& temporary, const std::string& path) {
  if (::link(temporary.c_str(), path.c_str()) == 0) {
    ::unlink(temporary.c_str());
    return 0;
  }
  if (!IsUnsupported(errno)) return errno;
  return ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0
             ? 0
             : errno;
}

// Writes the marker unless there is one. OK in both cases.
Status MakeMarker(const std::string& root, const std::string& path, const RootMarker& marker) {
  const std::string temporary = path + ".tmp." + base::RandomHex(8);
  RETURN_IF_ERROR(base::WriteFileAtomic(temporary, ToJson(marker)));
  const int error = GiveName(temporary, path);
  if (error != 0) ::unlink(temporary.c_str());
  if (error != 0 && error != EEXIST) return base::ErrnoError(error, "make " + path);
  return base::SyncDir(root);
}

}  // namespace

std::string ToJson(const RootMarker& marker) {
  const json out = {{"format", "megatrain-root"},
                    {"version", kRootMarkerVersion},
                    {"id", marker.id},
                    {"made", marker.made},
                    {"node", marker.node}};
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

StatusOr<RootMarker> ParseRootMarker(std::string_view text) {
  const json in = ParseJson(text);
  if (!in.is_object() || in.value("format", json()) != "megatrain-root") {
    return base::DataLoss(
        "not the marker of a root: no JSON object with format \"megatrain-root\"");
  }
  try {
    const int64_t version = Integer(in.at("version"));
    if (version > kRootMarkerVersion) {
      return base::FailedPrecondition(
          "the marker has format version {}, this program reads up to {}: use a newer Megatrain",
          version, kRootMarkerVersion);
    }
    RootMarker marker{.id = in.at("id").get<std::string>(),
                      .made = in.at("made").get<std::string>(),
                      .node = in.at("node").get<std::string>()};
    if (!IsId(marker.id)) return base::DataLoss("damaged marker of a root: its id is none");
    return marker;
  } catch (const json::exception& error) {
    return base::DataLoss("damaged marker of a root: {}", error.what());
  }
}

StatusOr<std::optional<RootMarker>> ReadRootMarker(const std::string& root) {
  const std::string path = base::JoinPath(root, kRootMarkerName);
  const auto text = base::ReadFile(path);
  if (absl::IsNotFound(text.status())) {
    RETURN_IF_ERROR(CheckRoot(root));
    return std::optional<RootMarker>();
  }
  RETURN_IF_ERROR(text.status());
  auto marker = ParseRootMarker(*text);
  if (!marker.ok()) return base::Annotate(marker.status(), path);
  return std::optional<RootMarker>(std::move(marker).value());
}

Status CheckRootMarker(const std::string& root, const std::string& id) {
  ASSIGN_OR_RETURN(const std::optional<RootMarker> marker, ReadRootMarker(root));
  if (!marker) return base::NotFound("{} has no marker: is its file system mounted?", root);
  if (marker->id == id) return OkStatus();
  return base::NotFound("{} is another root (its marker has id {}, the job's root has {})", root,
                        marker->id, id);
}

StatusOr<RootMarker> EnsureRootMarker(const std::string& root, const std::string& node) {
  ASSIGN_OR_RETURN(std::optional<RootMarker> marker, ReadRootMarker(root));
  if (marker) return *std::move(marker);
  const std::string path = base::JoinPath(root, kRootMarkerName);
  RETURN_IF_ERROR(
      MakeMarker(root, path,
                 {.id = base::NewUid(),
                  .made = base::FormatUtc(base::ToUnixMicros(base::Clock::Real()->WallNow())),
                  .node = node}));
  // Whoever came first has made it; a file server may also tell the winner that it has lost.
  ASSIGN_OR_RETURN(marker, ReadRootMarker(root));
  if (marker) return *std::move(marker);
  return base::Unavailable("{} was made and is gone again", path);
}

}  // namespace mt::checkpoint
