// A cluster played by the test: agents that keep reports until they are acknowledged, and ranks
// that follow commands. A job's ranks act together, as the end-of-step vector makes them do. Every
// message may be late, lost with its session, or come twice; nothing here looks into the
// coordinator.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/core/sim_agent.h"

namespace mt::daemon {

// One epoch of a job, over all of its nodes.
struct SimRun {
  std::map<int, std::string> nodes;  // rank -> node, of those that were accepted
  int world_size = 0;
  v1::RankState state = v1::SPAWNED;
  bool hold = false;  // Assign.hold, not lifted yet
  int64_t step = 0;
  int64_t start = 0;        // the step that it went on from
  v1::CheckpointBase base;  // that it must find; step 0: none
  bool fresh = false;       // it starts at step 0
  int64_t rank_seq = 0;
  std::set<std::string> acted;  // command ids
};

// Of a run that is over where there is none.
inline v1::RankState StateOf(const SimRun* run) { return run == nullptr ? v1::DONE : run->state; }

// Whether all of its ranks are there, and train or hold.
inline bool IsAtWork(const SimRun* run) {
  return run != nullptr && (run->state == v1::TRAINING || run->state == v1::HELD) &&
         static_cast<int>(run->nodes.size()) >= run->world_size;
}

// How many of the assigned slots are used by ranks that are held.
inline int UsedSlots(const std::map<SimKey, std::map<int, int>>& held, const v1::Assign& assign) {
  int used = 0;
  for (const auto& [other, ranks] : held) {
    for (const auto& [rank, slot] : ranks) {
      for (const v1::RankPlacement& placed : assign.ranks()) used += placed.slot() == slot;
    }
  }
  return used;
}

// Where checkpoints are. It may go away for some jobs and come back, and its disk may be full.
struct SimStorage {
  std::map<std::string, int64_t> saved;  // newest step on disk, by job uid
  std::set<std::string> lost;            // jobs whose storage is away
  bool full = false;

  int64_t NewestOf(const std::string& uid) { return lost.contains(uid) ? 0 : saved[uid]; }
  void Save(const std::string& uid, int64_t step) {
    saved[uid] = step;
    lost.erase(uid);
  }
};

class SimCluster {
 public:
  explicit SimCluster(const std::vector<std::string>& nodes, int slots) : slots_(slots) {
    for (const std::string& node : nodes) agents_[node].uid = base::NewUid();
  }

  // --- What may happen to an agent.
  void Connect(Core* core, const std::string& node) {
    SimAgent& agent = agents_[node];
    agent.link = std::make_shared<FakeLink>();
    agent.session = core->sessions().Open(agent.link);
    v1::WorkerMessage message;
    v1::Register* hello = message.mutable_register_();
    hello->set_node(node);
    hello->set_worker_uid(agent.uid);
    hello->set_boot_id("boot");
    hello->set_cluster_id(agent.cluster);
    hello->set_term(agent.term);
    hello->set_coordinator_uid(agent.coordinator);
    hello->set_cores(slots_);
    hello->set_newest_seq(agent.seq);
    hello->set_lowest_seq(agent.unacked.empty() ? agent.seq + 1 : agent.unacked.front().seq());
    for (int i = 0; i < slots_; ++i) {
      hello->add_slots()->set_index(i);
      hello->mutable_slots(i)->set_device(v1::CPU_SLOT);
    }
    for (const auto& [key, ranks] : agent.held) {
      v1::HeldAllocation* held = hello->add_allocations();
      agent.Describe(key, StateOf(Find(key)), held);
    }
    core->sessions().OnMessage(agent.session, message);
    agent.SendAgain(core);
  }
  void Disconnect(Core* core, const std::string& node) {
    SimAgent& agent = agents_[node];
    if (agent.link != nullptr && core != nullptr) core->sessions().OnClosed(agent.session);
    agent.link = nullptr;
  }
  // The agent's process starts anew and finds its ranks; what it had not passed on the ranks keep.
  void RestartAgent(Core* core, const std::string& node) {
    Disconnect(core, node);
    SimAgent& agent = agents_[node];
    agent.uid = base::NewUid();
    agent.seq = 0;
    std::deque<v1::WorkerMessage> kept = std::exchange(agent.unacked, {});
    for (v1::WorkerMessage& report : kept) agent.Report(std::move(report));
  }
  bool IsConnected(const std::string& node) { return agents_[node].IsConnected(); }
  void Beat(Core* core, const std::string& node) {
    const SimAgent& agent = agents_[node];
    core->sessions().OnMessage(agent.session, agent.HeartbeatMessage());
  }
  // The memory of GPUs whose ranks have ended is free.
  void FreeSlots() {
    for (auto& [node, agent] : agents_) {
      const auto held = agent.held;
      for (const auto& [key, ranks] : held) {
        if (agent.HasEnded(key)) agent.Free(key);
      }
    }
  }
  // A mistake: the agent forgets ranks, and nobody hears of their end. False: there are none.
  bool Forget(const std::string& node) {
    SimAgent& agent = agents_[node];
    if (agent.held.empty()) return false;
    const SimKey key = agent.held.begin()->first;
    LeaveRun(key, node);
    agent.held.erase(key);
    return true;
  }
  // Epochs that a user was shown at work: their ranks are not to be killed.
  std::set<SimKey> at_work;
  int num_killed_at_work() const { return num_killed_at_work_; }
  // Placements that were told twice, and not alike.
  int num_given_twice() const { return num_given_twice_; }
  // Starts at step 0, which only `resume --fresh` asks for here, that say not of which run.
  int num_fresh_without_token() const { return num_fresh_without_token_; }
  // Agents refuse slots that are used, as real ones do; otherwise they are counted.
  bool refuses_used_slots = false;

  // --- One message each way; false: there was none.
  bool Hear(Core* core, const std::string& node) {
    SimAgent& agent = agents_[node];
    if (agent.link == nullptr || agent.link->received.empty()) return false;
    const v1::CoordinatorMessage message = std::move(agent.link->received.front());
    agent.link->received.pop_front();
    if (message.has_registered() && !agent.Obeys(message.registered())) {
      Disconnect(core, node);
    } else if (message.has_report_ack()) {
      while (!agent.unacked.empty() && agent.unacked.front().seq() <= message.report_ack().seq())
        agent.unacked.pop_front();
    } else if (message.has_assign()) {
      TakeAssign(node, message.assign());
    } else if (message.has_command()) {
      TakeCommand(node, message.command());
    } else if (message.has_held_request()) {
      v1::WorkerMessage report;
      report.mutable_held_report();
      for (const auto& [key, ranks] : agent.held)
        agent.Describe(key, StateOf(Find(key)), report.mutable_held_report()->add_allocations(),
                       message.held_request().with_assign());
      agent.Report(std::move(report));
    }
    return true;
  }
  void Say(Core* core, const std::string& node) {
    if (agents_[node].link != nullptr) agents_[node].SendAgain(core);
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
      Load(key);
    } else if (run.state == v1::READY) {
      MoveAll(key, run.hold ? v1::HELD : v1::TRAINING);
    } else if (run.state == v1::TRAINING) {
      TakeStep(key);
      if (run.step >= 30) EndRun(key, /*completed=*/true);
    }
  }
  void Crash(const SimKey& key) {
    SimRun& run = runs_[key];
    if (run.nodes.empty()) return;
    const auto [rank, node] = *run.nodes.begin();
    v1::WorkerMessage message = SimRankMessage(key, rank, v1::FAULTED);
    message.mutable_rank_report()->mutable_status()->set_exited(true);
    message.mutable_rank_report()->mutable_status()->set_exit_signal(9);
    agents_[node].Report(std::move(message));
    // The agent ends the others of this node with it.
    for (const auto& [other, slot] : agents_[node].held[key]) {
      agents_[node].ended.insert({key, other});
      if (other == rank) continue;
      v1::WorkerMessage done = SimRankMessage(key, other, v1::DONE);
      done.mutable_rank_report()->mutable_status()->set_exited(true);
      agents_[node].Report(std::move(done));
    }
    LeaveRun(key, node);
  }

  // --- The storage of a job's checkpoints goes away, or is back; or every save fails, for its disk
  // is full.
  SimStorage storage;
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
    for (const auto& [rank, node] : run.nodes)
      agents_[node].Report(SimRankMessage(key, rank, state));
  }
  void TakeStep(const SimKey& key) {
    SimRun& run = runs_[key];
    ++run.step;
    v1::WorkerMessage message;
    message.mutable_steps()->set_job_uid(key.first);
    message.mutable_steps()->set_epoch(key.second);
    message.mutable_steps()->add_steps()->set_step(run.step);
    agents_[run.nodes[0]].Report(std::move(message));
  }
  // The ranks look for their checkpoint, as worker/train does.
  void Load(const SimKey& key) {
    SimRun& run = runs_[key];
    const int64_t there = storage.NewestOf(key.first);
    const bool enough = there >= run.base.step() || (run.base.allow_older() && there > 0);
    if (!run.fresh && !enough) return MissBase(key);
    run.start = run.fresh ? 0 : there;
    run.step = run.start;
    v1::WorkerMessage message = JobMessage(key);
    message.mutable_job_report()->mutable_run_info()->set_resumed_from_step(run.start);
    agents_[run.nodes[0]].Report(std::move(message));
    MoveAll(key, v1::READY);
  }
  // Rank 0 says why, the others only that it left.
  void MissBase(const SimKey& key) {
    const std::map<int, std::string> nodes = runs_[key].nodes;
    for (const auto& [rank, node] : nodes) {
      v1::WorkerMessage message = SimRankMessage(key, rank, v1::FAULTED);
      v1::RankReport* report = message.mutable_rank_report();
      report->set_cause(rank == 0 ? v1::STORAGE : v1::NETWORK);
      if (rank == 0) report->set_reason("EXPECTED_CHECKPOINT_MISSING");
      report->mutable_status()->set_exited(true);
      report->mutable_status()->set_exit_code(rank == 0 ? 73 : 75);
      agents_[node].Report(std::move(message));
    }
    for (const auto& [rank, node] : nodes) DropFrom(key, node);
  }
  // The ranks of one node are gone.
  void DropFrom(const SimKey& key, const std::string& node) {
    if (!agents_[node].held.contains(key)) return;
    LeaveRun(key, node);
    agents_[node].Free(key);
  }
  void LeaveRun(const SimKey& key, const std::string& node) {
    const auto found = runs_.find(key);
    if (found == runs_.end()) return;
    SimRun& run = found->second;
    std::erase_if(run.nodes, [&](const auto& entry) { return entry.second == node; });
    run.world_size = 1 << 20;  // the others wait for it for ever
    if (run.nodes.empty()) runs_.erase(found);
  }
  void EndRun(const SimKey& key, bool completed) {
    SimRun& run = runs_[key];
    v1::WorkerMessage message = JobMessage(key);
    message.mutable_job_report()->mutable_training_ended()->set_last_step(run.step);
    message.mutable_job_report()->mutable_training_ended()->set_completed(completed);
    agents_[run.nodes[0]].Report(std::move(message));
    for (const auto& [rank, node] : std::map(run.nodes)) {
      v1::WorkerMessage done = SimRankMessage(key, rank, v1::DONE);
      done.mutable_rank_report()->mutable_status()->set_exited(true);
      agents_[node].Report(std::move(done));
      agents_[node].ended.insert({key, rank});
    }
    runs_.erase(key);
  }

  void TakeAssign(const std::string& node, const v1::Assign& assign) {
    SimAgent& agent = agents_[node];
    const SimKey key{assign.job_uid(), assign.epoch()};
    std::string ranks;
    for (const v1::RankPlacement& placed : assign.ranks())
      ranks += fmt::format("{}/{} ", placed.rank(), placed.slot());
    ranks += assign.restart();
    num_fresh_without_token_ +=
        assign.spec().checkpoint().fresh() && assign.restart().empty() ? 1 : 0;
    const std::string& first = given_.try_emplace({key, node}, ranks).first->second;
    num_given_twice_ += first != ranks ? 1 : 0;
    v1::WorkerMessage reply;
    reply.mutable_assignment_reply()->set_job_uid(key.first);
    reply.mutable_assignment_reply()->set_epoch(key.second);
    const bool again = agent.held.contains(key);
    const int used = again ? 0 : UsedSlots(agent.held, assign);
    const bool over = !again && agent.NewestEpoch(key.first) >= key.second;
    const bool accepted = !over && (used == 0 || !refuses_used_slots);
    if (accepted) num_double_booked_ += used;
    reply.mutable_assignment_reply()->set_accepted(accepted);
    agent.Report(std::move(reply));
    if (again || !accepted) return;
    agent.assigned[key] = assign;
    SimRun& run = runs_[key];
    if (run.nodes.empty()) {
      run.world_size = assign.world_size();
      run.hold = assign.hold();
      run.base = assign.base();
      run.fresh = assign.spec().checkpoint().fresh();
    }
    for (const v1::RankPlacement& placed : assign.ranks()) {
      agent.held[key][placed.rank()] = placed.slot();
      run.nodes[placed.rank()] = node;
      agent.Report(SimRankMessage(key, placed.rank(), v1::SPAWNED));
    }
  }

  void TakeCommand(const std::string& node, const v1::Command& command) {
    SimAgent& agent = agents_[node];
    const SimKey key{command.job_uid(), command.epoch()};
    const bool known = agent.held.contains(key);
    v1::WorkerMessage ack;
    ack.mutable_command_ack()->set_command_id(command.command_id());
    ack.mutable_command_ack()->set_accepted(known);
    agent.Report(std::move(ack));
    if (!known) return;
    if (command.verb() == v1::Command::KILL) {
      num_killed_at_work_ += at_work.contains(key) && IsAtWork(Find(key)) ? 1 : 0;
      DropFrom(key, node);
    } else if (runs_.contains(key) && runs_[key].acted.insert(command.command_id()).second) {
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
    if (run.state == v1::TRAINING) TakeStep(key);
    done->set_step(run.step);
    if (saves && storage.full) {
      done->set_error("No space left on device");
      done->set_held(releases);
    } else if (saves) {
      storage.Save(key.first, run.step);
      done->mutable_checkpoint()->set_step(run.step);
      done->mutable_checkpoint()->set_epoch(key.second);
      done->mutable_checkpoint()->set_path(std::to_string(run.step));
    }
    agents_[run.nodes[0]].Report(std::move(message));
    if (command.verb() == v1::Command::HOLD || (releases && storage.full)) {
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
  std::map<std::string, SimAgent> agents_;
  std::map<std::pair<SimKey, std::string>, std::string> given_;  // ranks and slots, by node
  int num_given_twice_ = 0;
  int num_fresh_without_token_ = 0;
  int num_killed_at_work_ = 0;
  std::map<SimKey, SimRun> runs_;
  int num_double_booked_ = 0;
  int num_held_by_failed_saves_ = 0;
};

}  // namespace mt::daemon
