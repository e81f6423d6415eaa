// Setting up a run: opens the data, plans the engine, finds where to start, settles the choices
// that are made by timing, takes the memory, loads or initialises the state. Its result is one
// value that the step loop works with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/engine/engine.h"
#include "worker/train/checkpointer.h"
#include "worker/train/evaluator.h"
#include "worker/train/resume.h"
#include "worker/train/run_data.h"
#include "worker/train/samples/asked_texts.h"
#include "worker/train/samples/prompt_samples.h"
#include "worker/train/samples/text_writer.h"
#include "worker/train/step_cursor.h"
#include "worker/train/step_reporter.h"
#include "worker/train/trainer.h"
#include "worker/tuning/tuning.h"

namespace mt::train {

// All that a run consists of. Members point to each other and to the values behind the pointers, so
// the struct can be moved.
struct RunParts {
  RunParts();
  RunParts(RunParts&& other) noexcept;
  RunParts& operator=(RunParts&&) = delete;
  ~RunParts();

  std::unique_ptr<megatrain::v1::JobSpec> job;  // TrainArgs::job with what updates have changed
  spec::Course course;                          // the job's, or as it was when the run began
  StepCursor cursor;                            // at the step that the run goes on from
  std::unique_ptr<RunData> data;
  std::unique_ptr<parallel::CommSpans> spans;  // idle; that the engine has, unless TrainArgs has it
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<Checkpointer> checkpointer;
  std::unique_ptr<TextWriter> texts;        // nullptr: none, or those of another replica
  std::unique_ptr<PromptSamples> prompts;   // nullptr: none
  std::unique_ptr<AskedTexts> asked_texts;  // nullptr: none
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<StepReporter> reporter;
  double loss_scale = 0;  // of the gradients of the first step
  // The run, where it was complete before it began here: all its steps are done and saved. Else
  // empty.
  std::string complete_run;
};

// One thread; used once. What was made lives as long as the object until it is taken.
class RunSetup {
 public:
  explicit RunSetup(const TrainArgs& args);
  ~RunSetup();

  // Collective and blocking: every rank gets an error if one does. Reports the states LOADING and
  // READY. Throws what the backend throws.
  Status Run();
  // After Run has returned OK.
  RunParts Take() && { return std::move(parts_); }

 private:
  Status OpenDataAndPlan();
  // The data of two ranks may be recorded with different tokenizers.
  Status CompareVocabularies(checkpoint::Exchange* exchange) const;
  // Collective: the choices that backends make by timing, for all ranks.
  Status SettleChoices(checkpoint::Exchange* exchange);
  // Rank 0: the choices of the checkpoint to go on from.
  StatusOr<tuning::TuningTables> StoredChoices() const;
  Status MakeEngine();
  // Refuses a training.exit_at_iter that is done already: a chain of submissions would stand still.
  // Another placement of the job that has reached it ends there, as the first one would have.
  Status CheckExitAtIter() const;
  // What says where the run starts.
  StartArgs ArgsOfStart() const;
  // Collective: every rank's state. A checkpoint that proves damaged is passed over where that may
  // be (StartPoint::passes_over).
  Status LoadIntact(checkpoint::Exchange* exchange);
  // This rank's weights and its loader. Collective where another program's weights are loaded.
  Status LoadOrInitialize(checkpoint::Exchange* exchange);
  Status Load(const checkpoint::CheckpointId& id);
  // Opens the data anew where this course is another one than the job's.
  StatusOr<data::IndexRecord> TakeCourse(const spec::Course& course);
  Status LoadForeign(checkpoint::Exchange* exchange);
  Status OpenLoader();
  // Whether the run goes on from its own last step.
  bool IsComplete() const;
  // What all checkpoints of this run have in common.
  checkpoint::Manifest ManifestTemplate() const;
  void MakeTexts();
  void MakeParts();
  void AnnounceReady() const;
  bool is_rank_0() const { return args_.groups->rank() == 0; }

  const TrainArgs& args_;
  RunParts parts_;
  std::optional<engine::EnginePlan> plan_;  // until the engine is made of it
  StartPoint start_;
  tuning::TuningTables tuning_;             // empty where nothing is chosen by timing
  std::optional<CheckpointRecord> loaded_;  // rank 0: the checkpoint that the run goes on from
  std::vector<std::string> changed_;        // rank 0: RunInfo::changed
  bool goes_on_own_ = false;                // from a checkpoint of this job
  NamedRun run_;
};

}  // namespace mt::train
