// The parts of a Trainer and its step loop; private to trainer.cc and trainer_impl.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "worker/train/checkpointer.h"
#include "worker/train/engine.h"
#include "worker/train/evaluator.h"
#include "worker/train/run_data.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace mt::train {

// Rules that keep ranks together: what ends, saves or evaluates is decided only from what all ranks
// hold alike (the step number, summed vectors), and vectors are judged at fixed points: that of
// step k before step k + 2, or earlier where a save, an evaluation or the end waits for it.
class Trainer::Impl {
 public:
  explicit Impl(const TrainArgs& args);

  Status SetUp();
  TrainResult Run();

 private:
  // Why the loop ended.
  enum class Ending { kCompleted, kStopWithSave, kStopWithoutSave };

  // --- Setting up (trainer.cc).
  // This rank's verdict or, where it has none, the first other rank's.
  Status Agree(checkpoint::Exchange* exchange, const Status& mine);
  Status OpenDataAndEngine();
  Status LoadOrInitialize();
  void MakeParts();
  checkpoint::Manifest ManifestTemplate() const;

  // --- The loop (trainer_impl.cc).
  StatusOr<Ending> Loop();
  // Before step n: judges the outcome of n - 2 and acts on its word.
  StatusOr<std::optional<Ending>> ActBefore(int64_t step);
  Status RunStep(int64_t step);
  // After a step: evaluation and save, where they are due.
  Status RunDue(int64_t step);
  // Reads, reports and judges every outcome up to this step that was not read yet.
  Status ReadUpTo(int64_t step);
  Status Judge(int64_t step, const kernels::EndOfStep& vector);
  // This rank's word for the step: commands and, by the clock, a save. Rank 0.
  double TakeWord(int64_t step);
  Status Evaluate(int64_t step, bool final);
  // A save during training: a failure ends the run only if strict.
  Status SaveAndGoOn(int64_t step);
  TrainResult Finish(const StatusOr<Ending>& ending);
  void SaveAtEnd(TrainResult* result);
  void AnnounceReady() const;
  bool is_reporter() const { return engine_->dp_rank() == 0; }

  const TrainArgs args_;
  const int64_t total_steps_;
  PhaseClock phases_;
  RunData data_;
  std::unique_ptr<Engine> engine_;
  StartPoint start_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<data::Loader> loader_;
  StepReportConfig report_;
  bool stop_at_nonfinite_ = true;

  int64_t start_step_ = 0;  // done before this run
  int64_t last_step_ = 0;   // done
  int64_t read_step_ = 0;   // its outcome was read
  std::array<StepTimes, StepRing::kSteps> times_;
  std::array<CommandWord, StepRing::kSteps> words_;
  CommandsUnderWay under_way_;
  int64_t timed_word_step_ = -StepRing::kSteps;  // rank 0: carried the last save asked for by time
};

}  // namespace mt::train
