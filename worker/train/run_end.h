// The end of a run: the last save, the last evaluation, and what is said of how it ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/engine/engine.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/train/checkpointer.h"
#include "worker/train/command_relay.h"
#include "worker/train/ending.h"
#include "worker/train/step_cursor.h"
#include "worker/train/trainer.h"

namespace mt::train {

// One thread; used once.
class RunEnd {
 public:
  // The pointers must outlive the call.
  struct Args {
    const megatrain::v1::JobSpec* job = nullptr;  // as updates have left it
    int64_t total_steps = 0;
    std::string complete_run;  // RunParts::complete_run
    const StepCursor* cursor = nullptr;
    parallel::RankGroups* groups = nullptr;
    engine::Engine* engine = nullptr;
    Checkpointer* checkpointer = nullptr;
    CommandRelay* commands = nullptr;
    TrainObserver* observer = nullptr;
    const data::Dataset* train_data = nullptr;
    const std::optional<EvalRecord>* best_evaluation = nullptr;  // so far
    std::function<Status()> last_evaluation;                     // collective; empty: none
  };
  explicit RunEnd(const Args& args) : args_(args) {}

  // Collective, after the loop has ended with this. Saves before it evaluates, so that the trained
  // state is safe first.
  TrainResult Finish(const StatusOr<Ending>& ending);

 private:
  bool Saves(Ending ending) const;
  // Ends a save beside training.
  void Settle(TrainResult* result);
  void Save(TrainResult* result);
  // Rank 0: waits until the last checkpoint is copied to the second directory, or could not be.
  void FinishCopies();
  void Describe(Ending ending, TrainResult* result) const;
  // What the run has come to, once all is done.
  void Summarize(TrainResult* result) const;

  const Args args_;
};

}  // namespace mt::train
