// The step loop of a run: what runs, reads, evaluates, saves and ends, and in which order.
//
// Rules that keep ranks together: everything that ends, holds, saves or evaluates is decided from
// what all ranks hold alike only (the step number, summed vectors), and vectors are judged at fixed
// points: that of step k before step k + 2, or earlier where a save, an evaluation, a hold or the
// end waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/trace/step_profile.h"
#include "worker/train/command_relay.h"
#include "worker/train/ending.h"
#include "worker/train/run_setup.h"
#include "worker/train/step_judge.h"
#include "worker/train/trainer.h"

namespace mt::train {

// One thread, except for what any may ask of phases().
class StepLoop final : private CommandTarget {
 public:
  StepLoop(const TrainArgs& args, RunParts parts);
  ~StepLoop() override;
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // To the end of the run, or until a command or an error. Collective; once. Throws what the
  // backend throws.
  TrainResult Run();

  parallel::RankGroups& groups() const { return *args_.groups; }
  const engine::PhaseClock& phases() const { return std::as_const(*run_.engine).phases(); }
  // What Run has thrown, with the step in which it was noticed: a GPU runs up to two steps behind.
  Status WithStep(const Status& thrown) const;

 private:
  StatusOr<Ending> Loop();
  // The run ends by itself, unless a release that came with its last steps ends or holds it.
  StatusOr<Ending> End(Ending ending);
  Status RunStep(int64_t step);
  // After a step: save and evaluation, where they are due.
  Status RunDue(int64_t step);
  Status Evaluate(int64_t step, EvalScope scope);

  // What commands make the run do.
  Status ReadUpTo(int64_t step) override;
  Status Save() override;
  Status BeginSave(bool requested) override;
  bool IsSaveOver() const override;
  Status EndSave() override;
  bool IsSaved() const override;
  Status Update(const std::optional<RunSettings>& asked, Status* refused) override;
  Status Profile(const std::optional<int64_t>& asked, Status* refused) override;
  std::optional<StatusOr<ProfileRecord>> Profiled() const override { return profile_.outcome(); }
  Status Decode(const std::optional<TextRequest>& asked,
                StatusOr<std::vector<DecodedText>>* texts) override;
  StatusOr<CommandBits> ReduceIdle(const CommandBits& mine) override;
  Status OnHeld() override;
  void OnResumed(base::MonotonicTime since, base::MonotonicTime now) override;
  bool IsSaveDueByTime() const override;
  std::optional<StatusOr<CheckpointRecord>> SavedSince(int64_t step) const override;
  Status Label(const CheckpointRecord& saved, const checkpoint::Label& label) override;
  // Runs a part of a save, in the phase of saves.
  Status InSavePhase(const std::function<Status()>& part);

  bool is_rank_0() const { return args_.groups->rank() == 0; }

  const TrainArgs args_;
  RunParts run_;
  StepJudge judge_;
  trace::StepProfile profile_;
  CommandRelay commands_;
  std::optional<EvalRecord> best_evaluation_;  // of this start, with the lowest loss
};

}  // namespace mt::train
