// One rank's training run: set up from a completed job (run_setup.h), then the step loop
// (step_loop.h). Every rank of the job creates a trainer and runs it; the rules that keep ranks
// together are in worker/train/README.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/control/numbers.h"
#include "kernels/ops/backend.h"
#include "worker/checkpoint/format/resume_base.h"
#include "worker/engine/step_vector.h"
#include "worker/engine/tensor_copies.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/params/param_store.h"
#include "worker/trace/step_tracer.h"
#include "worker/train/command.h"
#include "worker/train/observer.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

class StepLoop;

struct TrainArgs {
  // Completed and resolved for its slots (common/spec/validate.h); the same on every rank.
  const megatrain::v1::JobSpec* job = nullptr;
  std::string job_uid;  // empty: a standalone run
  int64_t epoch = 0;    // the control plane's, of this placement
  // Jobs that wrote to the same checkpoint directory and have ended; it may be taken over from
  // them.
  std::vector<std::string> ended_job_uids;
  // The checkpoint that the job must find, or a newer one; nullopt: it begins, or nothing is known.
  std::optional<checkpoint::ResumeBase> base;
  // Of the request to begin another run on purpose (checkpoint::RunQuery::restart); empty: none.
  std::string restart = {};
  // Absolute; a job's paths lie below them (common/spec/roots.h). An empty cache_root keeps indices
  // in memory.
  std::string data_root;
  std::string checkpoint_root;
  bool make_checkpoint_root = false;  // where it is missing
  std::string cache_root;
  // Id in the checkpoint root's marker when the job was placed, and the question whether this
  // run's epoch is open (FenceRepair). Empty: a fence that is gone is not raised again.
  std::string checkpoint_root_id = {};
  std::function<StatusOr<bool>()> epoch_open = {};
  // Steps that are not pruned, since others read their checkpoints now (PruneArgs::kept_steps).
  // Empty: none. Any thread.
  std::function<std::vector<int64_t>()> kept_steps = {};
  // This rank's groups in the job's mesh (RankGroups::CreateForJob), used by this trainer only and
  // outliving it. The trainer aborts all of them where one breaks; its end closes the links.
  parallel::RankGroups* groups = nullptr;
  kernels::Backend* backend = nullptr;
  TrainObserver* observer = nullptr;
  CommandSource* commands = nullptr;  // on world rank 0; may be nullptr
  bool hold = false;                  // ranks wait before the first step until they are resumed
  // Pause of held ranks between two idle reductions.
  std::chrono::milliseconds idle_interval = control::kIdleReductionInterval;
  const base::Clock* clock = base::Clock::Real();
  // Memory that this rank may take of its device; 0: all that the device (a GPU less a reserve for
  // libraries) or the host has free.
  int64_t memory_limit_bytes = 0;
  // The host sleeps for this long before it enqueues each step, in benchmarks and tests of how far
  // it runs ahead of a GPU.
  std::chrono::milliseconds host_delay{0};
  // On CPU slots the thread that writes a save beside training rests most of the time. Not in tests
  // that hold training up until each save is over.
  bool saves_rest = true;
  engine::TensorCopies tensor_copies;  // the same on all ranks
  // Steps that every rank traces for TrainObserver::OnTrace; none where empty.
  trace::TraceSteps trace = {};
  // On rank 0: where profiles that commands ask for leave their traces; empty: they are refused.
  std::string trace_directory = {};
  // Test seams. spans: times communication in place of the trainer's own, and outlives it;
  // checkpoint_failpoint: SaveArgs::failpoint. end_of_step: may change this rank's
  // vector of a step (0: an idle reduction) before it is summed. after_step: is given the
  // parameters once the step's update is over; on a GPU they lie in device memory.
  parallel::CommSpans* spans = nullptr;
  std::function<Status(std::string_view point)> checkpoint_failpoint;
  std::function<void(int64_t step, engine::StepVector* mine)> end_of_step;
  std::function<void(int64_t step, const params::ParamStore& store)> after_step;
};

// What a run has come to, as far as a rank knows.
struct RunSummary {
  int64_t skipped_steps = 0;  // of the whole run
  int64_t restarts = 0;       // of the run, after its first start; rank 0's
  // Over the training data, whole ones and a part; of a blend those over the data set that was read
  // most often. 0: mock data.
  double passes = 0;
  // Of this start, with the lowest loss; over windows unless only the last one was made.
  std::optional<EvalRecord> best_evaluation{};
};

// How a run ended. An error is in `status`, with its cause and exit code (worker/failure).
struct TrainResult {
  Status status;
  int64_t last_step = 0;   // updates tried, skipped ones included
  bool completed = false;  // the run length was reached
  bool final_save_failed = false;
  std::string exit_condition;  // that ended the run before its length: "training.exit_at_iter 500"
  std::string message;         // one line for people
  RunSummary summary;          // where the status is OK
};

// One thread. No exception leaves it.
class Trainer {
 public:
  // Opens the data, plans and takes the memory, initialises or loads the state. Collective and
  // blocking: every rank gets an error if one does.
  static StatusOr<std::unique_ptr<Trainer>> Create(const TrainArgs& args);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  // Trains to the end of the run, or until a command or an error ends it. Collective; call once.
  TrainResult Run();

  // Where the device stands, and the key of the phase that it is in (PhaseClock::LastMark,
  // LastPhase), for the diagnosis of a hang. Any thread.
  std::string LastMark() const;
  std::string_view LastPhase() const;
  // The microbatch that it has reached, from 0 (PhaseClock::LastMicrobatch). Any thread.
  int LastMicrobatch() const;

 private:
  Trainer(TrainObserver* observer, std::unique_ptr<StepLoop> loop);

  TrainObserver* observer_;
  std::unique_ptr<StepLoop> loop_;
};

}  // namespace mt::train
