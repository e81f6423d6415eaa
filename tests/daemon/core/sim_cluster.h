// A cluster played by the test: agents that keep reports until they are acknowledged, and ranks
// that follow commands. A job's ranks act together, as the end-of-step vector makes them do. Every
// message may be late, lost with its session, or come twice; nothing here looks into the
// coordinator.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/core.h"
#include "daemon/workers/sessions.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

using SimKey = std::pair<std::string, int64_t>;  // job uid, epoch

// One epoch of a job, over all of its nodes.
struct SimRun {
  std::map<int, std::string> nodes;  // rank -> node, of those that were accepted
  int world_size = 0;
  v1::RankState state = v1::SPAWNED;
  bool hold = false;  // Assign.hold, not lifted yet
  int64_t step = 0;
  int64_t rank_seq = 0;
  std::set<std::string> acted;  // command ids
};

class SimCluster {
 public:
  explicit SimCluster(const std::vector<std::string>& nodes, int slots) : slots_(slots) {
    for (const std::string& node : nodes) agents_[node].uid = base::NewUid();
  }

  // --- What may happen to an agent.
  void Connect(Core* core, const std::string& node) {
    Agent& agent = agents_[node];
    agent.link = std::make_shared<FakeLink>();
    agent.session = core->sessions().Open(agent.link);
    v1::WorkerMessage message;
    v1::Register* hello = message.mutable_register_();
    hello->set_node(node);
    hello->set_worker_uid(agent.uid);
    hello->set_boot_id("boot");
    hello->set_cores(slots_);
    for (int i = 0; i < slots_; ++i) {
      hello->add_slots()->set_index(i);
      hello->mutable_slots(i)->set_device(v1::CPU_SLOT);
    }
    for (const auto& [key, ranks] : agent.held) {
      v1::HeldAllocation* held = hello->add_allocations();
      held->set_job_uid(key.first);
      held->set_epoch(key.second);
      for (const auto& [rank, slot] : ranks) {
        v1::RankStatus* status = held->add_ranks();
        status->set_rank(rank);
        status->set_slot(slot);
        status->set_state(runs_[key].state);
      }
    }
    core->sessions().OnMessage(agent.session, message);
    // What is not acknowledged goes again.
    for (const v1::WorkerMessage& report : agent.unacked)
      core->sessions().OnMessage(agent.session, report);
  }
  void Disconnect(Core* core, const std::string& node) {
    Agent& agent = agents_[node];
    if (agent.link != nullptr && core != nullptr) core->sessions().OnClosed(agent.session);
    agent.link = nullptr;
  }
  // The agent's process starts anew and finds its ranks; what it had not passed on the ranks keep.
  void RestartAgent(Core* core, const std::string& node) {
    Disconnect(core, node);
    Agent& agent = agents_[node];
    agent.uid = base::NewUid();
    agent.seq = 0;
    std::deque<v1::WorkerMessage> kept = std::exchange(agent.unacked, {});
    for (v1::WorkerMessage& report : kept) Report(agent, std::move(report));
  }
  bool IsConnected(const std::string& node) {
    Agent& agent = agents_[node];
    return agent.link != nullptr && !agent.link->closed;
  }
  void Beat(Core* core, const std::string& node) {
    v1::WorkerMessage beat;
    beat.mutable_heartbeat()->set_beat(1);
    core->sessions().OnMessage(agents_[node].session, beat);
  }

  // --- One message each way; false: there was none.
  bool Hear(const std::string& node) {
    Agent& agent = agents_[node];
    if (agent.link == nullptr || agent.link->received.empty()) return false;
    const v1::CoordinatorMessage message = std::move(agent.link->received.front());
    agent.link->received.pop_front();
    if (message.has_report_ack()) {
      while (!agent.unacked.empty() && agent.unacked.front().seq() <= message.report_ack().seq())
        agent.unacked.pop_front();
    } else if (message.has_assign()) {
      TakeAssign(node, message.assign());
    } else if (message.has_command()) {
      TakeCommand(node, message.command());
    }
    return true;
  }
  void Say(Core* core, const std::string& node) {
    Agent& agent = agents_[node];
    if (agent.link == nullptr) return;
    for (const v1::WorkerMessage& report : agent.unacked)
      core->sessions().OnMessage(agent.session, report);
  }

  // --- One of the runs goes a step further, or dies.
  std::vector<SimKey> Runs() const {
    std::vector<SimKey> keys;
    for (const auto& [key, run] : runs_) keys.push_back(key);
    return keys;
  }
  void Advance(const SimKey& key) {
    SimRun& run = runs_[key];
    if (static_cast<int>(run.nodes.size()) < run.world_size) return;
    if (run.state == v1::SPAWNED) {
      MoveAll(key, v1::READY);
    } else if (run.state == v1::READY) {
      MoveAll(key, run.hold ? v1::HELD : v1::TRAINING);
    } else if (run.state == v1::TRAINING) {
      ++run.step;
      v1::WorkerMessage message;
      message.mutable_steps()->set_job_uid(key.first);
      message.mutable_steps()->set_epoch(key.second);
      message.mutable_steps()->add_steps()->set_step(run.step);
      Report(agents_[run.nodes[0]], std::move(message));
      if (run.step >= 30) EndRun(key, /*completed=*/true);
    }
  }
  void Crash(const SimKey& key) {
    SimRun& run = runs_[key];
    if (run.nodes.empty()) return;
    const auto [rank, node] = *run.nodes.begin();
    v1::WorkerMessage message = RankMessage(key, rank, v1::FAULTED);
    message.mutable_rank_report()->mutable_status()->set_exited(true);
    message.mutable_rank_report()->mutable_status()->set_exit_signal(9);
    Report(agents_[node], std::move(message));
    DropFrom(key, node);
  }

  // Every save fails while the disk is full.
  void SetDiskFull(bool full) { disk_full_ = full; }
  int num_held_by_failed_saves() const { return num_held_by_failed_saves_; }
  int num_double_booked() const { return num_double_booked_; }
  const SimRun* Find(const SimKey& key) const {
    const auto it = runs_.find(key);
    return it == runs_.end() ? nullptr : &it->second;
  }
  size_t num_held() const {
    size_t count = 0;
    for (const auto& [node, agent] : agents_) count += agent.held.size();
    return count;
  }

 private:
  struct Agent {
    std::string uid;
    std::shared_ptr<FakeLink> link;
    SessionId session = 0;
    int64_t seq = 0;
    std::deque<v1::WorkerMessage> unacked;
    std::map<SimKey, std::map<int, int>> held;  // rank -> slot
  };

  void Report(Agent& agent, v1::WorkerMessage message) {
    message.set_seq(++agent.seq);
    agent.unacked.push_back(std::move(message));
  }
  static v1::WorkerMessage RankMessage(const SimKey& key, int rank, v1::RankState state) {
    v1::WorkerMessage message;
    message.mutable_rank_report()->set_job_uid(key.first);
    message.mutable_rank_report()->set_epoch(key.second);
    message.mutable_rank_report()->mutable_status()->set_rank(rank);
    message.mutable_rank_report()->mutable_status()->set_state(state);
    return message;
  }
  v1::WorkerMessage JobMessage(const SimKey& key) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(key.first);
    message.mutable_job_report()->set_epoch(key.second);
    message.mutable_job_report()->set_rank_seq(++runs_[key].rank_seq);
    return message;
  }
  void MoveAll(const SimKey& key, v1::RankState state) {
    SimRun& run = runs_[key];
    run.state = state;
    for (const auto& [rank, node] : run.nodes) Report(agents_[node], RankMessage(key, rank, state));
  }
  // The ranks of one node are gone.
  void DropFrom(const SimKey& key, const std::string& node) {
    Agent& agent = agents_[node];
    if (agent.held.erase(key) == 0) return;
    v1::WorkerMessage message;
    message.mutable_allocation_gone()->set_job_uid(key.first);
    message.mutable_allocation_gone()->set_epoch(key.second);
    Report(agent, std::move(message));
    SimRun& run = runs_[key];
    std::erase_if(run.nodes, [&](const auto& entry) { return entry.second == node; });
    run.world_size = 1 << 20;  // the others wait for it for ever
    if (run.nodes.empty()) runs_.erase(key);
  }
  void EndRun(const SimKey& key, bool completed) {
    SimRun& run = runs_[key];
    v1::WorkerMessage message = JobMessage(key);
    message.mutable_job_report()->mutable_training_ended()->set_last_step(run.step);
    message.mutable_job_report()->mutable_training_ended()->set_completed(completed);
    Report(agents_[run.nodes[0]], std::move(message));
    for (const auto& [rank, node] : std::map(run.nodes)) {
      v1::WorkerMessage done = RankMessage(key, rank, v1::DONE);
      done.mutable_rank_report()->mutable_status()->set_exited(true);
      Report(agents_[node], std::move(done));
    }
    std::set<std::string> nodes;
    for (const auto& [rank, node] : run.nodes) nodes.insert(node);
    for (const std::string& node : nodes) DropFrom(key, node);
  }

  void TakeAssign(const std::string& node, const v1::Assign& assign) {
    Agent& agent = agents_[node];
    const SimKey key{assign.job_uid(), assign.epoch()};
    v1::WorkerMessage reply;
    reply.mutable_assignment_reply()->set_job_uid(key.first);
    reply.mutable_assignment_reply()->set_epoch(key.second);
    reply.mutable_assignment_reply()->set_accepted(true);
    Report(agent, std::move(reply));
    if (agent.held.contains(key)) return;
    for (const auto& [other, ranks] : agent.held) {
      for (const auto& [rank, slot] : ranks) {
        for (const v1::RankPlacement& placed : assign.ranks())
          num_double_booked_ += placed.slot() == slot ? 1 : 0;
      }
    }
    SimRun& run = runs_[key];
    if (run.nodes.empty()) {
      run.world_size = assign.world_size();
      run.hold = assign.hold();
    }
    for (const v1::RankPlacement& placed : assign.ranks()) {
      agent.held[key][placed.rank()] = placed.slot();
      run.nodes[placed.rank()] = node;
      Report(agent, RankMessage(key, placed.rank(), v1::SPAWNED));
    }
  }

  void TakeCommand(const std::string& node, const v1::Command& command) {
    Agent& agent = agents_[node];
    const SimKey key{command.job_uid(), command.epoch()};
    const bool known = agent.held.contains(key);
    v1::WorkerMessage ack;
    ack.mutable_command_ack()->set_command_id(command.command_id());
    ack.mutable_command_ack()->set_accepted(known);
    Report(agent, std::move(ack));
    if (!known) return;
    if (command.verb() == v1::Command::KILL) {
      DropFrom(key, node);
    } else if (runs_[key].acted.insert(command.command_id()).second) {
      Act(key, command);
    }
  }
  // The ranks follow a command, all of them, once.
  void Act(const SimKey& key, const v1::Command& command) {
    SimRun& run = runs_[key];
    if (static_cast<int>(run.nodes.size()) < run.world_size)
      return;  // some are gone: it never acts
    v1::WorkerMessage message = JobMessage(key);
    v1::CommandDone* done = message.mutable_job_report()->mutable_command_done();
    done->set_command_id(command.command_id());
    done->set_word_step(run.state == v1::TRAINING ? run.step : 0);
    const bool releases = command.verb() == v1::Command::RELEASE;
    const bool saves = releases || command.verb() == v1::Command::CHECKPOINT_NOW ||
                       command.verb() == v1::Command::STOP_WITH_SAVE;
    if (run.state == v1::TRAINING) ++run.step;
    done->set_step(run.step);
    if (saves && disk_full_) {
      done->set_error("No space left on device");
      done->set_held(releases);
    } else if (saves) {
      done->mutable_checkpoint()->set_step(run.step);
      done->mutable_checkpoint()->set_epoch(key.second);
      done->mutable_checkpoint()->set_path(std::to_string(run.step));
    }
    Report(agents_[run.nodes[0]], std::move(message));
    if (command.verb() == v1::Command::HOLD || (releases && disk_full_)) {
      num_held_by_failed_saves_ += releases ? 1 : 0;
      run.hold = true;
      if (run.state != v1::HELD) MoveAll(key, v1::HELD);
    } else if (command.verb() == v1::Command::RESUME) {
      run.hold = false;
      if (run.state == v1::HELD) MoveAll(key, v1::TRAINING);
    } else if (releases || command.verb() == v1::Command::STOP_WITH_SAVE ||
               command.verb() == v1::Command::STOP_WITHOUT_SAVE) {
      EndRun(key, /*completed=*/false);
    }
  }

  const int slots_;
  std::map<std::string, Agent> agents_;
  std::map<SimKey, SimRun> runs_;
  int num_double_booked_ = 0;
  bool disk_full_ = false;
  int num_held_by_failed_saves_ = 0;
};

}  // namespace mt::daemon
