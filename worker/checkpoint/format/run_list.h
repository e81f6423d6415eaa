// The file run.json of a directory of checkpoints: the runs that have trained there. A run is one
// training from its first step to its last, over pauses, faults and submissions; it has an id from
// its beginning on, which its checkpoints carry. What a start makes of the list is run_choice.h's.
// Functions block; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// How a job says that a run begins: the text of its fields checkpoint.load, load_tag, load_kind and
// fresh.
struct RunBeginning {
  std::string load;  // empty: not set
  std::string load_tag;
  std::string load_kind = "resume";
  bool fresh = false;

  // False: the job names none, and goes on with what is there.
  bool named() const { return *this != RunBeginning(); }
  friend bool operator==(const RunBeginning&, const RunBeginning&) = default;
};

// The checkpoint from which a run began.
struct RunSource {
  std::string run;  // that saved it; empty: not known
  CheckpointId id;
  std::string digest;  // ManifestDigest; empty: not known
  friend bool operator==(const RunSource&, const RunSource&) = default;
};

// A directory of checkpoints as an agent or a standalone run sees it.
struct RunPlace {
  std::string root_id;    // in the root's marker (root_marker.h); empty: it has none
  std::string directory;  // below the root
  std::string path;       // absolute
  friend bool operator==(const RunPlace&, const RunPlace&) = default;
};

struct RunRecord {
  std::string id;     // base::NewUid
  std::string began;  // UTC
  std::string job_uid;
  std::string job_name;  // of the job with which it began
  RunBeginning beginning;
  std::optional<RunSource> from;  // what that came to; nullopt: nothing was loaded, or not known
  // Its checkpoints were copied from those of this run: id; empty: they were not.
  std::string parent;
  // The restart token of the request that began it on purpose (run_choice.h); empty: none did.
  std::string restart = {};
  RunPlace place;  // in which it began
  // Directory epochs of its starts: first and last of each range, ascending.
  std::vector<std::pair<int64_t, int64_t>> epochs;
};

// Content of the file.
struct RunList {
  std::vector<RunRecord> runs;  // in the order in which they began
};

inline constexpr std::string_view kRunListName = "run.json";
inline constexpr int kRunListVersion = 1;

// The list as JSON text (FORMAT.md).
std::string ToJson(const RunList& list);
// Parses a list from arbitrary bytes. kDataLoss: not a valid list; kFailedPrecondition: written in
// a newer format.
StatusOr<RunList> ParseRunList(std::string_view json);

// The runs of a directory; none where it has no such file. Else ParseRunList's errors, which name
// the file and what to do, and those of reading.
StatusOr<RunList> ReadRuns(const std::string& directory, const base::FileOpener& open = {});
// Writes the file of a directory, durably. The caller holds the directory (fence.h).
Status WriteRuns(const std::string& directory, const RunList& list);
// Puts the run into the file of a directory where that does not have it. As WriteRuns.
Status KeepRun(const std::string& directory, const RunRecord& run);

// The run of this id; nullptr: the list has none.
const RunRecord* FindRun(const RunList& list, std::string_view id);
// The run of a directory epoch, the one that began last where several name it; nullptr: none does.
const RunRecord* RunOfEpoch(const RunList& list, int64_t epoch);
// The id of the run that saved a checkpoint of the list's directory; empty: not known. A manifest
// from before runs had ids has none: there the epoch tells.
std::string RunOf(const RunList& list, const Manifest& manifest);
void AddEpoch(int64_t epoch, RunRecord* run);
// The highest directory epoch of the run's starts; 0: none is known.
int64_t LastEpoch(const RunRecord& run);
// False where the run began elsewhere, so that its checkpoints in `here` are copies: in another
// root or directory where both roots have ids, else at another path.
bool IsAt(const RunRecord& run, const RunPlace& here);

// What a completed job, as JSON, says of its run's beginning.
RunBeginning BeginningOf(std::string_view spec_json);
// "load 1200, weights", "fresh"; "nothing is named" where none of its fields is set.
std::string TextOf(const RunBeginning& beginning);

}  // namespace mt::checkpoint
