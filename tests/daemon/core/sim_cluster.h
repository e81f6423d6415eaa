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
v1::RankState StateOf(const SimRun* run);

// Whether all of its ranks are there, and train or hold.
bool IsAtWork(const SimRun* run);

// How many of the assigned slots are used by ranks that are held.
int UsedSlots(const std::map<SimKey, std::map<int, int>>& held, const v1::Assign& assign);

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
  void Connect(Core* core, const std::string& node);
  void Disconnect(Core* core, const std::string& node);
  // The agent's process starts anew and finds its ranks; what it had not passed on the ranks keep.
  void RestartAgent(Core* core, const std::string& node);
  bool IsConnected(const std::string& node) { return agents_[node].IsConnected(); }
  void Beat(Core* core, const std::string& node);
  // The memory of GPUs whose ranks have ended is free.
  void FreeSlots();
  // A mistake: the agent forgets ranks, and nobody hears of their end. False: there are none.
  bool Forget(const std::string& node);
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
  bool Hear(Core* core, const std::string& node);
  void Say(Core* core, const std::string& node);

  // --- One of the runs goes a step further, or dies.
  std::vector<SimKey> Runs() const;
  void Advance(const SimKey& key);
  void Crash(const SimKey& key);

  // --- The storage of a job's checkpoints goes away, or is back; or every save fails, for its disk
  // is full.
  SimStorage storage;
  int num_held_by_failed_saves() const { return num_held_by_failed_saves_; }

  int num_double_booked() const { return num_double_booked_; }
  const SimRun* Find(const SimKey& key) const;
  size_t num_held() const;

 private:
  v1::WorkerMessage JobMessage(const SimKey& key);
  void MoveAll(const SimKey& key, v1::RankState state);
  void TakeStep(const SimKey& key);
  // The ranks look for their checkpoint, as worker/train does.
  void Load(const SimKey& key);
  // Rank 0 says why, the others only that it left.
  void MissBase(const SimKey& key);
  // The ranks of one node are gone.
  void DropFrom(const SimKey& key, const std::string& node);
  void LeaveRun(const SimKey& key, const std::string& node);
  void EndRun(const SimKey& key, bool completed);

  void TakeAssign(const std::string& node, const v1::Assign& assign);

  void TakeCommand(const std::string& node, const v1::Command& command);
  // The ranks follow a command, all of them, once.
  void Act(const SimKey& key, const v1::Command& command);

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
