// What agents and ranks do with each message, and what may happen to them.
#include "tests/daemon/core/sim_cluster.h"

namespace mt::daemon {

v1::RankState StateOf(const SimRun* run) { return run == nullptr ? v1::DONE : run->state; }

bool IsAtWork(const SimRun* run) {
  return run != nullptr && (run->state == v1::TRAINING || run->state == v1::HELD) &&
         static_cast<int>(run->nodes.size()) >= run->world_size;
}

int UsedSlots(const std::map<SimKey, std::map<int, int>>& held, const v1::Assign& assign) {
  int used = 0;
  for (const auto& [other, ranks] : held) {
    for (const auto& [rank, slot] : ranks) {
      for (const v1::RankPlacement& placed : assign.ranks()) used += placed.slot() == slot;
    }
  }
  return used;
}

void SimCluster::Connect(Core* core, const std::string& node) {
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

void SimCluster::Disconnect(Core* core, const std::string& node) {
  SimAgent& agent = agents_[node];
  if (agent.link != nullptr && core != nullptr) core->sessions().OnClosed(agent.session);
  agent.link = nullptr;
}

void SimCluster::RestartAgent(Core* core, const std::string& node) {
  Disconnect(core, node);
  SimAgent& agent = agents_[node];
  agent.uid = base::NewUid();
  agent.seq = 0;
  std::deque<v1::WorkerMessage> kept = std::exchange(agent.unacked, {});
  for (v1::WorkerMessage& report : kept) agent.Report(std::move(report));
}

void SimCluster::Beat(Core* core, const std::string& node) {
  const SimAgent& agent = agents_[node];
  core->sessions().OnMessage(agent.session, agent.HeartbeatMessage());
}

void SimCluster::FreeSlots() {
  for (auto& [node, agent] : agents_) {
    const auto held = agent.held;
    for (const auto& [key, ranks] : held) {
      if (agent.HasEnded(key)) agent.Free(key);
    }
  }
}

bool SimCluster::Forget(const std::string& node) {
  SimAgent& agent = agents_[node];
  if (agent.held.empty()) return false;
  const SimKey key = agent.held.begin()->first;
  LeaveRun(key, node);
  agent.held.erase(key);
  return true;
}

bool SimCluster::Hear(Core* core, const std::string& node) {
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

void SimCluster::Say(Core* core, const std::string& node) {
  if (agents_[node].link != nullptr) agents_[node].SendAgain(core);
}

std::vector<SimKey> SimCluster::Runs() const {
  std::vector<SimKey> keys;
  for (const auto& [key, run] : runs_) keys.push_back(key);
  return keys;
}

void SimCluster::Advance(const SimKey& key) {
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

void SimCluster::Crash(const SimKey& key) {
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

const SimRun* SimCluster::Find(const SimKey& key) const {
  const auto it = runs_.find(key);
  return it == runs_.end() ? nullptr : &it->second;
}

size_t SimCluster::num_held() const {
  size_t count = 0;
  for (const auto& [node, agent] : agents_) count += agent.held.size();
  return count;
}

v1::WorkerMessage SimCluster::JobMessage(const SimKey& key) {
  v1::WorkerMessage message;
  message.mutable_job_report()->set_job_uid(key.first);
  message.mutable_job_report()->set_epoch(key.second);
  message.mutable_job_report()->set_rank_seq(++runs_[key].rank_seq);
  return message;
}

void SimCluster::MoveAll(const SimKey& key, v1::RankState state) {
  SimRun& run = runs_[key];
  run.state = state;
  for (const auto& [rank, node] : run.nodes) agents_[node].Report(SimRankMessage(key, rank, state));
}

void SimCluster::TakeStep(const SimKey& key) {
  SimRun& run = runs_[key];
  ++run.step;
  v1::WorkerMessage message;
  message.mutable_steps()->set_job_uid(key.first);
  message.mutable_steps()->set_epoch(key.second);
  message.mutable_steps()->add_steps()->set_step(run.step);
  agents_[run.nodes[0]].Report(std::move(message));
}

void SimCluster::Load(const SimKey& key) {
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

void SimCluster::MissBase(const SimKey& key) {
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

void SimCluster::DropFrom(const SimKey& key, const std::string& node) {
  if (!agents_[node].held.contains(key)) return;
  LeaveRun(key, node);
  agents_[node].Free(key);
}

void SimCluster::LeaveRun(const SimKey& key, const std::string& node) {
  const auto found = runs_.find(key);
  if (found == runs_.end()) return;
  SimRun& run = found->second;
  std::erase_if(run.nodes, [&](const auto& entry) { return entry.second == node; });
  run.world_size = 1 << 20;  // the others wait for it for ever
  if (run.nodes.empty()) runs_.erase(found);
}

void SimCluster::EndRun(const SimKey& key, bool completed) {
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

void SimCluster::TakeAssign(const std::string& node, const v1::Assign& assign) {
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

void SimCluster::TakeCommand(const std::string& node, const v1::Command& command) {
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

void SimCluster::Act(const SimKey& key, const v1::Command& command) {
  SimRun& run = runs_[key];
  if (static_cast<int>(run.nodes.size()) < run.world_size) return;  // some are gone: it never acts
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

}  // namespace mt::daemon
