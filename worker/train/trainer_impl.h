// The parts of a Trainer and its step loop; private to trainer.cc (setting up), trainer_impl.cc
// (the loop and the end) and trainer_words.cc (commands).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "worker/engine/engine.h"
#include "worker/train/checkpointer.h"
#include "worker/train/evaluator.h"
#include "worker/train/run_data.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"
#include "worker/tuning/tuning.h"

namespace mt::train {

// Rules that keep ranks together: what ends, holds, saves or evaluates is decided only from what
// all ranks hold alike (the step number, summed vectors), and vectors are judged at fixed points:
// that of step k before step k + 2, or earlier where a save, an evaluation, a hold or the end waits
// for it.
class Trainer::Impl {
 public:
  explicit Impl(const TrainArgs& args);
  ~Impl();

  Status SetUp();
  TrainResult Run();
  parallel::RankGroups& groups() const { return *args_.groups; }
  std::string LastMark() const { return std::as_const(*engine_).phases().LastMark(); }
  std::string_view LastPhase() const { return Name(std::as_const(*engine_).phases().LastPhase()); }
  // What Run threw, with the step in which it was noticed: a GPU runs up to two steps behind.
  Status WithStep(const Status& thrown) const;

 private:
  // Why the loop ended.
  enum class Ending { kCompleted, kStopWithSave, kStopWithoutSave, kExitAtIter, kExitAfter };

  // --- Setting up (trainer.cc).
  // This rank's verdict or, where it has none, the first other rank's.
  Status Agree(checkpoint::Exchange* exchange, const Status& mine);
  Status OpenDataAndEngine();
  Status MakeEngine();
  // Collective: the choices that backends make by timing, for all ranks.
  Status SettleChoices(checkpoint::Exchange* exchange);
  // Those of the checkpoint to go on from; for rank 0.
  StatusOr<tuning::TuningTables> StoredChoices() const;
  Status LoadOrInitialize();
  void MakeParts();
  checkpoint::Manifest ManifestTemplate() const;
  void AnnounceReady() const;
  // Raises the reported peaks to what is taken now.
  void MeasureMemory();

  // --- The loop (trainer_impl.cc).
  StatusOr<Ending> Loop();
  Status RunStep(int64_t step);
  // Adds the steps that the device has ended to what the rank has done.
  void CountEnded();
  // After a step: evaluation and save, where they are due.
  Status RunDue(int64_t step);
  // Reads, reports and judges every outcome up to this step that was not read yet.
  Status ReadUpTo(int64_t step);
  Status Judge(int64_t step, const engine::StepVector& vector);
  // Whether a dynamic loss scale answers to this overflow: it can still fall.
  bool IsForTheLossScale(const engine::StepVector& vector) const;
  Status Evaluate(int64_t step, bool final);
  // A save during training; remembers its outcome. An error only where it ends the run.
  Status SaveAndGoOn(int64_t step);
  TrainResult Finish(const StatusOr<Ending>& ending);
  void SaveAtEnd(TrainResult* result);
  bool SavesAtEnd(Ending ending) const;
  void Describe(Ending ending, TrainResult* result) const;

  // --- Words (trainer_words.cc).
  // This rank's word for the step (0: an idle reduction): commands and, by the clock, a save or the
  // end. Rank 0.
  double TakeWord(int64_t step);
  // Before step n: judges the outcome of n - 2 and acts on its word.
  StatusOr<std::optional<Ending>> ActBefore(int64_t step);
  // Follows a word that `word_step` carried (0: an idle reduction) and reports its commands.
  StatusOr<std::optional<Ending>> Act(const CommandWord& word, int64_t word_step);
  // From HELD to TRAINING or to the end. What the steps before carried acts first.
  StatusOr<std::optional<Ending>> WaitHeld();
  void EnterHeld();
  void LeaveHeld();
  // Rank 0's settings become everyone's; remembers why not, if they cannot.
  Status Update(int64_t word_step);
  Status ReopenEvaluation(const RunSettings& next, RunData* data) const;
  // Tells of the commands that were sent with this step or before; rank 0.
  void ReportActed(int64_t word_step);
  CommandResult ResultOf(const SentCommand& sent) const;
  // Commands whose word found no step any more to act before; rank 0.
  void ReportAtEnd();

  // Of a step's entry in times_ and words_.
  static size_t RingIndex(int64_t step) {
    return static_cast<size_t>(step % engine::StepRing::kSteps);
  }
  bool is_reporter() const { return args_.groups->rank() == 0; }

  const TrainArgs args_;
  const std::unique_ptr<megatrain::v1::JobSpec> job_;  // args_.job with what updates changed
  const int64_t total_steps_;
  RunData data_;
  std::optional<engine::EnginePlan> plan_;  // until engine_ is made of it
  std::unique_ptr<engine::Engine> engine_;
  StartPoint start_;
  tuning::TuningTables tuning_;  // for checkpoints; empty where nothing is chosen by timing
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<data::Loader> loader_;
  StepReportConfig report_;
  std::optional<CheckpointRecord> loaded_;  // rank 0
  bool stop_at_nonfinite_ = true;
  const kernels::LossScaleConstants loss_scale_constants_;
  double loss_scale_ = 0;  // of the gradients of the next step to be read

  int64_t start_step_ = 0;    // done before this run
  int64_t last_step_ = 0;     // done: enqueued, on a GPU
  int64_t counted_step_ = 0;  // its times are known
  int64_t read_step_ = 0;     // its outcome was read
  int64_t acted_step_ = 0;    // its word has acted
  RankCounters counters_;
  bool held_ = false;
  base::MonotonicTime held_since_;
  std::optional<base::MonotonicTime> training_since_;
  std::array<StepTimes, engine::StepRing::kSteps> times_;
  std::array<CommandWord, engine::StepRing::kSteps> words_;
  CommandsUnderWay under_way_;
  Status save_status_;  // of the newest save
  int64_t save_tried_step_ = -1;
  Status update_status_;  // of the newest update
  int64_t timed_word_step_ =
      -engine::StepRing::kSteps;  // rank 0: carried the last save asked for by time
};

}  // namespace mt::train
