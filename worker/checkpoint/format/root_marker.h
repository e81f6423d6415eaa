// The marker of a checkpoint root: a small file that gives the storage behind a path an identity,
// so that "the checkpoints are gone" can be told from "this is another root", as after a mount that
// did not come up (FORMAT.md). It is made once, by the first agent that finds the root without one,
// and never changed. All functions block; thread-safe, also between processes and hosts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::checkpoint {

// Content of the file.
struct RootMarker {
  std::string id;    // random; letters, digits and '-'
  std::string made;  // UTC, for people
  std::string node;  // that made it, for people
};

inline constexpr std::string_view kRootMarkerName = ".megatrain-root";
inline constexpr int kRootMarkerVersion = 1;

// The marker as JSON text (FORMAT.md).
std::string ToJson(const RootMarker& marker);
// Parses a marker from arbitrary bytes. kDataLoss: not a valid marker; kFailedPrecondition: written
// in a newer format.
StatusOr<RootMarker> ParseRootMarker(std::string_view json);

// The marker of a root, or nullopt where the root has none. kNotFound where there is no such root;
// else the errors of ParseRootMarker and of the file system.
StatusOr<std::optional<RootMarker>> ReadRootMarker(const std::string& root);

// OK if the root is the one whose marker has this id. kNotFound: it has none, or that of another
// one; else the errors of ReadRootMarker.
Status CheckRootMarker(const std::string& root, const std::string& id);

// The marker of a root; one is made, by this node, where there is none. Of several who do so at the
// same moment one wins, and all return its marker. A crash leaves a whole marker or none (and
// perhaps a temporary file beside it). Errors are those of ReadRootMarker; kPermissionDenied where
// the root has no marker and cannot be written. A root that is missing is never made.
StatusOr<RootMarker> EnsureRootMarker(const std::string& root, const std::string& node);

}  // namespace mt::checkpoint
