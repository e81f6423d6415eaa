// Where a start begins: the epoch of its directory, which run it is of, and the checkpoint that it
// goes on from, all decided by rank 0 for all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/resume_base.h"
#include "worker/checkpoint/format/run_choice.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/data/index_record.h"
#include "worker/engine/engine.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

struct StartPoint {
  std::string directory;  // to which this run saves, absolute; empty: none
  int64_t epoch = 1;      // of the directory: eEEEE in the names of the folders that this run saves
  std::optional<checkpoint::Fence> fence;  // on rank 0
  std::string second;                      // checkpoint.second, on rank 0, absolute; empty: none
  std::string root_id;  // in the marker of the checkpoint root; empty: it has none
  // The checkpoint to go on from and its directory, usually the same one. nullopt: a cold start.
  std::string load_directory;
  std::optional<checkpoint::CheckpointId> load;
  bool bound = false;    // chosen by StartArgs::base
  bool own = false;      // the newest intact one of the run, or of what it is a copy of
  bool weights = false;  // the run begins, or begins again, with the weights of `load` alone
  // What another program has written, with whose weights the run begins, or begins again, absolute,
  // and its checkpoint.load_kind, "hf" or "llmc"; empty: none. `load` is nullopt then.
  std::string foreign, foreign_kind;
  std::vector<std::string> damaged;  // on rank 0: checkpoints that were passed over, and why
  checkpoint::RunChoice run;         // on rank 0

  // Whether another checkpoint is chosen where this one proves damaged.
  bool passes_over() const { return bound || own; }
};

struct StartArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed
  std::string checkpoint_root;                  // absolute
  bool make_root = false;                       // where it is missing
  std::string job_uid;                          // empty: a standalone run
  int64_t epoch = 0;                            // the control plane's, of this placement
  std::vector<std::string> ended_job_uids;      // jobs that the directory may be taken over from
  // What the job's run is known to have saved; nullptr: nothing. Where it does not know the run, a
  // job that names a beginning is not bound by it.
  const checkpoint::ResumeBase* base = nullptr;
  std::string restart = {};                     // RunQuery::restart
  checkpoint::DamagedCheckpoints damaged = {};  // that loading has found
  // Test seam: RaiseArgs::failpoint.
  std::function<Status(std::string_view point)> fence_failpoint = {};
};

// Collective and blocking. Rank 0 first raises the fence of the run's directory
// (checkpoint/format/fence.h), so that no other placement changes it, then decides.
// Then the run is chosen (checkpoint/format/run_choice.h), and last the checkpoint: with a base
// ChooseByBase's; else the run's newest intact one; where it has none, what its beginning names: a
// step, a folder of the job's directory, or a path below the root (load), a tag, or nothing, which
// is step 0. A base is asked before the fence is raised, so that nothing is written where it is
// refused, and again after it, when nobody else can change the directory any more.
// kFailedPrecondition where another holds the directory, and, with the reason
// EXPECTED_CHECKPOINT_MISSING (common/rpc/reason.h), where the base is not there; kNotFound where a
// beginning names nothing that is there; kDataLoss where all of a run's checkpoints are damaged;
// the cause STORAGE where the root is missing.
StatusOr<StartPoint> FindStart(const StartArgs& args, checkpoint::Exchange* exchange);

// Collective and blocking: chooses again under the fence of `start`, which passes over, after
// loading has found its checkpoint damaged; adds that to args->damaged. `damage`: what this rank
// found; empty: nothing.
StatusOr<StartPoint> FindIntactStart(StartArgs* args, const StartPoint& start,
                                     const std::string& damage, checkpoint::Exchange* exchange);

// The run that a start is of.
struct NamedRun {
  checkpoint::RunRecord record;  // on ranks other than 0 the id alone
  bool begins = false;           // with this start
  std::string loaded;            // id of the run that saved what was loaded; empty: none, not known
};

// Collective and blocking, once the state is loaded: rank 0 writes run.json and names the run in
// the fence of `start`, where the run has a directory. Errors are those of CheckFence and the
// storage.
StatusOr<NamedRun> NameRun(const StartArgs& args, StartPoint* start,
                           checkpoint::Exchange* exchange);

}  // namespace mt::train
