// What a resume expects to find: the newest checkpoint that the coordinator knows of a job's run. A
// directory that has less is not the one in which the job trained (a mount that is missing, another
// root), and a run that began there would start cold and write over the job's history; so it is
// refused, with what was expected and what is there. A directory that has it damaged is the right
// one: the newest intact checkpoint of the job is taken, and what was passed over is said. Blocks
// on the file system and writes nothing; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/intact.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::checkpoint {

// The checkpoint that is expected.
struct ResumeBase {
  std::string job_uid;  // whose checkpoints count; those of other jobs are left alone
  int64_t step = 0;
  int64_t epoch = 0;         // directory epoch; 0: not known
  std::string digest;        // ManifestDigest; empty: not known
  std::string root_id;       // of the root in which it was saved (root_marker.h); empty: not known
  bool allow_older = false;  // an older one of the job will do
  // Id of the run whose checkpoints count, whichever job saved them; empty: it is not known, and
  // those of job_uid count.
  std::string run = {};
};

struct BaseQuery {
  std::string root;       // absolute
  std::string root_id;    // in its marker, as it is now; empty: it has none
  std::string directory;  // of the job's checkpoints, below root; it need not exist
  ResumeBase base;
  DamagedCheckpoints damaged = {};
  RunList runs = {};  // of the directory: which run the checkpoints without an id are of
};

struct BaseChoice {
  CheckpointId load;
  // What was passed over, newest first: "step-00001200-e0003: rank-00000.safetensors is missing".
  std::vector<std::string> damaged;
};

// The checkpoint to go on from: the newest intact one of the run, or of the job, if it is the base
// or newer, and an older one where the base is there and damaged, or where that is allowed. Intact
// means: a manifest that can be read, the ranks' manifests with the digests that it gives, and all
// files with whole headers and of their full length; digests of tensors are checked when they are
// loaded. kFailedPrecondition where the base is not there, with step and digest that are expected,
// what is there, the root, whether it is another one, and what to do; where a checkpoint that may
// be the base cannot be read, nothing is decided either, and the message says so.
StatusOr<BaseChoice> ChooseByBase(const BaseQuery& query);

}  // namespace mt::checkpoint
