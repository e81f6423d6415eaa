// Converts the trainer's reports to messages for the agent. Called by the training thread; never
// blocks.
#pragma once

#include <functional>

#include "worker/rank/activity_board.h"
#include "worker/train/observer.h"

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::rank {

class ChannelObserver final : public train::TrainObserver {
 public:
  // Where the reports go; all must be set.
  struct Deps {
    std::function<void(megatrain::v1::RankMessage)> send;
    std::function<void(int64_t step)> note_progress;
    std::function<void(const train::RankCounters&)> post_counters;
    ActivityBoard* activities = nullptr;  // outlives the observer
    std::function<void(const Status& why, bool alone)> failed;
  };
  explicit ChannelObserver(Deps deps) : deps_(std::move(deps)) {}

  void OnState(train::TrainState state, int64_t step) override;
  void OnProgress(int64_t step) override { deps_.note_progress(step); }
  void OnActivity(const train::Activity& activity) override { deps_.activities->Post(activity); }
  void OnActivityEnd(train::ActivityKind kind) override { deps_.activities->End(kind); }
  void OnCounters(const train::RankCounters& counters) override { deps_.post_counters(counters); }
  void OnRunInfo(const train::RunInfo& info) override;
  void OnStep(const megatrain::v1::StepRecord& record) override;
  void OnEval(const train::EvalRecord& record) override;
  void OnBench(const megatrain::v1::BenchReport& report) override;
  void OnCheckpointSaved(const train::CheckpointRecord& record) override;
  void OnCheckpointFailed(int64_t step, const Status& why) override;
  void OnSecondCopy(const train::SecondCopyRecord& record) override;
  void OnCheckpointsDeleted(const std::vector<std::string>& paths) override;
  void OnCommandDone(const train::CommandResult& result) override;
  void OnFailed(const Status& why, bool alone) override { deps_.failed(why, alone); }

 private:
  const Deps deps_;
};

}  // namespace mt::rank
