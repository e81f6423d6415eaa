// Fakes of the agent's seams: a loop and a clock that the test turns by hand, and a coordinator,
// ranks, processes, GPU probe and store that do what the test tells them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"
#include "worker/node/agent/coordinator_link.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/ranks/allocation_store.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"

namespace mt::node {

class ManualLoop final : public EventLoop {
 public:
  explicit ManualLoop(base::ManualClock* clock) : clock_(clock) {}

  void Post(Task task) override { posted_.push_back(std::move(task)); }
  TimerId After(std::chrono::milliseconds delay, Task task) override;
  void Cancel(TimerId timer) override { timers_.erase(timer); }

  // Runs the posted tasks, and those that they post.
  void RunPosted();
  // Advances the clock and fires the timers that become due, in order.
  void Advance(std::chrono::milliseconds by);
  size_t num_timers() const { return timers_.size(); }
  // Drops all tasks and timers, as the end of a process does.
  void Clear();

 private:
  struct Timer {
    base::MonotonicTime at;
    Task task;
  };
  base::ManualClock* clock_;
  std::deque<Task> posted_;
  std::map<TimerId, Timer> timers_;
  TimerId next_ = 1;
};

class FakeCoordinator final : public CoordinatorLink {
 public:
  void SetListener(Listener* listener) override { listener_ = listener; }
  void Open() override;
  void Send(const megatrain::v1::WorkerMessage& message) override;
  int64_t QueuedBytes() const override { return queued_bytes; }
  void Close() override { close_asked = true; }

  void Say(const megatrain::v1::CoordinatorMessage& message) { listener_->OnMessage(message); }
  void Register();
  void Break(const std::string& why);
  // The messages of one kind sent on this connection, oldest first.
  std::vector<megatrain::v1::WorkerMessage> Heard(
      megatrain::v1::WorkerMessage::BodyCase kind) const;

  std::vector<megatrain::v1::WorkerMessage> heard;  // since the last Open
  int num_opened = 0;
  bool open = false;
  bool close_asked = false;
  int64_t queued_bytes = 0;

 private:
  Listener* listener_ = nullptr;
};

class FakeRanks final : public RankLinks {
 public:
  void SetListener(Listener* listener) override { listener_ = listener; }
  void Send(LinkId link, const megatrain::v1::AgentMessage& message) override;
  void Refuse(LinkId link, const std::string& reason) override { refused[link] = reason; }

  void Say(LinkId link, const megatrain::v1::RankMessage& message);
  void Hang(LinkId link) { listener_->OnRankClosed(link); }

  std::map<LinkId, std::vector<megatrain::v1::AgentMessage>> heard;
  std::map<LinkId, std::string> refused;

 private:
  Listener* listener_ = nullptr;
};

class FakeLauncher final : public RankLauncher {
 public:
  void SetListener(Listener* listener) override { listener_ = listener; }
  Status Start(LaunchId launch, const RankLaunch& args) override;
  // The process id is 5000 and the launch's number.
  int Adopt(LaunchId launch, const std::string& folder) override;
  void Terminate(LaunchId launch) override { terminated.push_back(launch); }
  void Kill(LaunchId launch) override { killed.push_back(launch); }

  void End(LaunchId launch, const RankExit& exit) { listener_->OnRankGone(launch, exit); }
  // The newest launch of this rank, started or adopted.
  LaunchId LaunchOf(int rank) const;

  Status start_status;
  std::map<LaunchId, RankLaunch> started;
  std::map<LaunchId, std::string> adopted;  // folders
  std::vector<LaunchId> terminated;
  std::vector<LaunchId> killed;

 private:
  Listener* listener_ = nullptr;
};

// Keeps the requests until the test answers them.
class FakeGpuProbe final : public GpuProbe {
 public:
  void Probe(Done done) override { asked.push_back(std::move(done)); }
  // Answers the oldest request.
  void Answer(const StatusOr<GpuInventory>& found);

  std::deque<Done> asked;
};

// Kept by the test across agents, as a disk is.
class FakeStore final : public AllocationStore {
 public:
  Status Save(const megatrain::v1::AllocationRecord& record) override;
  void Remove(const std::string& job_uid, int64_t epoch) override;

  Status save_status;
  std::map<std::pair<std::string, int64_t>, megatrain::v1::AllocationRecord> records;
};

}  // namespace mt::node
