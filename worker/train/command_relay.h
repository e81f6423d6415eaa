// How commands reach every rank and when they act. Rank 0 takes them from its source and sends them
// as bits with a step's vector; every rank acts on the bits of step k before step k + 2, and on
// those of an idle reduction at once. While ranks are held the relay runs the idle reductions. What
// a command does is the CommandTarget's part.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/train/command.h"
#include "worker/train/command_bits.h"
#include "worker/train/ending.h"
#include "worker/train/observer.h"
#include "worker/train/pending_commands.h"
#include "worker/train/step_cursor.h"

namespace mt::train {

// What commands make a run do. The calls come on every rank in the same order, so they may be
// collective; an error ends the run.
class CommandTarget {
 public:
  virtual ~CommandTarget() = default;
  // Reads, reports and judges the outcome of every step up to this one, each once.
  virtual Status ReadUpTo(int64_t step) = 0;
  // Collective: saves the state after the last step, and returns when it is saved. A failed save is
  // an error only where it ends the run.
  virtual Status Save() = 0;
  // Collective: the same, but where the run saves beside training it returns once the save has
  // begun. While another one is under way, one that is `requested` begins after it, any other is
  // left out.
  virtual Status BeginSave(bool requested) = 0;
  // Rank 0: true if the save beside training is over and EndSave has not been called.
  virtual bool IsSaveOver() const = 0;
  // Collective: takes the outcome of the save beside training, and begins one that was requested
  // meanwhile. An error as in Save.
  virtual Status EndSave() = 0;
  // True if the state after the last step is on disk; the same on every rank.
  virtual bool IsSaved() const = 0;
  // Collective: makes rank 0's `asked` (nullopt elsewhere) the settings of every rank. *refused
  // says why no rank has taken them over, OK if all have.
  virtual Status Update(const std::optional<RunSettings>& asked, Status* refused) = 0;
  // Collective: begins a profile of rank 0's `asked` steps (nullopt elsewhere). *refused says why
  // no rank has begun it, OK where all have.
  virtual Status Profile(const std::optional<int64_t>& asked, Status* refused) = 0;
  // Rank 0: what the newest profile has come to; nullopt: it has not ended.
  virtual std::optional<StatusOr<ProfileRecord>> Profiled() const = 0;
  // Collective: has rank 0's `asked` (nullopt elsewhere) written before the next step. Rank 0:
  // *texts, or in it why there are none.
  virtual Status Decode(const std::optional<TextRequest>& asked,
                        StatusOr<std::vector<DecodedText>>* texts) = 0;
  // Collective: an idle reduction that carries this rank's bits; the bits of all, after its
  // verdict.
  virtual StatusOr<CommandBits> ReduceIdle(const CommandBits& mine) = 0;
  // The ranks begin to wait, which ends a profile (collective); they go on after a pause from
  // `since` to `now`.
  virtual Status OnHeld() = 0;
  virtual void OnResumed(base::MonotonicTime since, base::MonotonicTime now) = 0;
  // Rank 0: true if the time between periodic saves is over.
  virtual bool IsSaveDueByTime() const = 0;
  // Rank 0: the newest checkpoint where it is of this step or of a later one, or why there is none;
  // nullopt: its save has not ended, or not begun.
  virtual std::optional<StatusOr<CheckpointRecord>> SavedSince(int64_t step) const = 0;
  // Rank 0: labels a checkpoint of the run's directory.
  virtual Status Label(const CheckpointRecord& saved, const checkpoint::Label& label) = 0;
};

// One thread.
class CommandRelay {
 public:
  // The pointers must outlive the relay.
  struct Args {
    CommandSource* source = nullptr;  // nullptr: nobody commands
    CommandTarget* target = nullptr;
    TrainObserver* observer = nullptr;
    StepCursor* cursor = nullptr;
    const base::Clock* clock = nullptr;
    bool is_rank_0 = true;                       // of the world
    std::chrono::milliseconds exit_after{0};     // training.exit_after; 0: off
    std::chrono::milliseconds idle_interval{0};  // pause between two idle reductions
  };
  explicit CommandRelay(const Args& args) : args_(args) {}

  // Starts the time that training.exit_after counts; a run that is held first starts it when it is
  // let go.
  void BeginTraining() { training_since_ = args_.clock->Now(); }
  // This rank's bits for the vector of `step` (0: an idle reduction). Those of other ranks than 0
  // are empty.
  CommandBits Take(int64_t step);
  // The summed bits of a step, once its outcome was read.
  void Received(int64_t step, const CommandBits& bits) { bits_[step] = bits; }
  // Call before `step`: acts on the bits of the step two before and, if ranks are held, returns
  // when they are let go or the run ends. nullopt: the step may run.
  StatusOr<std::optional<Ending>> ActBefore(int64_t step);
  // Call where the run is to end by itself, with every outcome read: a release among the bits that
  // found no step to act before acts now, as do the bits before it. Returns when the ranks do not
  // wait for its sake any more: with its ending, or nullopt: the run ends as it was to.
  StatusOr<std::optional<Ending>> ActBeforeEnd();
  // Makes the ranks wait from the next ActBefore on.
  Status Hold();
  bool held() const { return held_; }

  // True if bits that found no step to act before asked for a save: it is part of the end.
  bool IsSavePending() const;
  // Rank 0: reports the commands whose saves and profiles have ended.
  void ReportSaved();
  // Rank 0, when the run is over: reports the commands that were not reported yet, those that no
  // step carried included.
  void ReportAtEnd();

 private:
  // Follows the bits that `carrier` carried (0: an idle reduction) and reports their commands.
  StatusOr<std::optional<Ending>> Act(const CommandBits& bits, int64_t carrier);
  Status Update(int64_t carrier);
  Status Profile(int64_t carrier);
  Status Decode(int64_t carrier);
  // True if bits of steps that have not acted are like this.
  bool IsPending(const std::function<bool(const CommandBits&)>& wanted) const;
  // From held to training or to the end. The bits of steps that were enqueued already act first.
  StatusOr<std::optional<Ending>> WaitHeld();
  void Resume();
  // Rank 0: reports the commands that this step or an earlier one carried, but for those that wait
  // for a save to end.
  void ReportActed(int64_t carrier);
  // Rank 0: reports the profile that has ended, or has not come to any step.
  void ReportProfiled();
  Status NothingTraced() const;
  Status NothingWritten() const;
  // `acted_after`: the step whose state the command is about.
  CommandResult ResultOf(const SentCommand& sent, int64_t acted_after) const;

  // A command whose save is under way, or has yet to begin.
  struct Saving {
    SentCommand sent;
    int64_t acted_after = 0;  // what is saved is the state after this step, or after a later one
  };

  const Args args_;
  PendingCommands pending_;        // rank 0
  std::deque<Saving> saving_;      // rank 0
  RecentSteps<CommandBits> bits_;  // of steps that were read
  // Rank 0: the steps that carried the last save_due and the last save_over.
  int64_t save_due_step_ = -StepCursor::kLag;
  int64_t save_over_step_ = -StepCursor::kLag;
  bool held_ = false;
  bool kept_ = false;  // the newest bits that acted: a release whose save failed
  base::MonotonicTime held_since_;
  std::optional<base::MonotonicTime> training_since_;
  Status update_refused_;   // of the newest update
  Status profile_refused_;  // of the newest profile
  StatusOr<std::vector<DecodedText>> decoded_ = std::vector<DecodedText>();  // of the newest decode
  std::optional<SentCommand> profiling_;  // rank 0: a profile that is under way
  bool over_ = false;                     // rank 0: what comes now comes too late
};

}  // namespace mt::train
