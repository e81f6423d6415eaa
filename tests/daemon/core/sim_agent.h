// One agent of SimCluster: what it holds, and the reports that it keeps until they are
// acknowledged.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/control/held_digest.h"
#include "daemon/core/core.h"
#include "daemon/workers/sessions.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

using SimKey = std::pair<std::string, int64_t>;  // job uid, epoch

// A rank of a run says in which state it is.
inline v1::WorkerMessage SimRankMessage(const SimKey& key, int rank, v1::RankState state) {
  v1::WorkerMessage message;
  message.mutable_rank_report()->set_job_uid(key.first);
  message.mutable_rank_report()->set_epoch(key.second);
  message.mutable_rank_report()->mutable_status()->set_rank(rank);
  message.mutable_rank_report()->mutable_status()->set_state(state);
  return message;
}

struct SimAgent {
  std::string uid = base::NewUid();
  std::shared_ptr<FakeLink> link;
  SessionId session = 0;
  int64_t seq = 0;
  std::deque<v1::WorkerMessage> unacked;
  std::map<SimKey, std::map<int, int>> held;  // rank -> slot
  std::set<std::pair<SimKey, int>> ended;     // of those, ranks whose end was reported

  std::map<SimKey, v1::Assign> assigned;

  // Whom it obeys.
  std::string cluster;
  int64_t term = 0;
  std::string coordinator;

  // As the agent's Obedience has it (worker/node/agent/obedience.h).
  bool Obeys(const v1::Registered& registered) {
    const bool other_cluster = !cluster.empty() && registered.cluster_id() != cluster;
    const bool other_start =
        registered.term() == term && registered.coordinator_uid() != coordinator;
    if (other_cluster || registered.term() < term || other_start) return false;
    cluster = registered.cluster_id();
    term = registered.term();
    coordinator = registered.coordinator_uid();
    return true;
  }
  // Of what was ever assigned; 0: nothing.
  int64_t NewestEpoch(const std::string& job) const {
    const auto after = assigned.upper_bound({job, std::numeric_limits<int64_t>::max()});
    if (after == assigned.begin() || std::prev(after)->first.first != job) return 0;
    return std::prev(after)->first.second;
  }
  bool IsConnected() const { return link != nullptr && !link->closed; }
  // Whether the end of every rank that it holds of the run was reported.
  bool HasEnded(const SimKey& key) const {
    return std::ranges::all_of(held.at(key), [&](const auto& rank) {
      return ended.contains({key, rank.first});
    });
  }
  void Report(v1::WorkerMessage message) {
    message.set_seq(++seq);
    unacked.push_back(std::move(message));
  }
  // What is not acknowledged goes again.
  void SendAgain(Core* core) const {
    for (const v1::WorkerMessage& report : unacked) core->sessions().OnMessage(session, report);
  }
  v1::WorkerMessage HeartbeatMessage() const {
    uint64_t digest = 0;
    for (const auto& [key, ranks] : held) {
      for (const auto& [rank, slot] : ranks)
        digest += control::HeldRankHash(key.first, key.second, rank, ended.contains({key, rank}));
    }
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_beat(1);
    message.mutable_heartbeat()->set_held_digest(digest);
    message.mutable_heartbeat()->set_newest_seq(seq);
    return message;
  }
  // What it says of a run whose ranks are in this state, or have ended.
  void Describe(const SimKey& key, v1::RankState state, v1::HeldAllocation* allocation,
                bool with_assign = false) const {
    const v1::Assign& assign = assigned.at(key);
    allocation->set_job_uid(key.first);
    allocation->set_epoch(key.second);
    allocation->set_world_size(assign.world_size());
    allocation->set_job_name(assign.spec().name());
    if (with_assign) *allocation->mutable_assign() = assign;
    for (const auto& [rank, slot] : held.at(key)) {
      const bool over = ended.contains({key, rank});
      v1::RankStatus* status = allocation->add_ranks();
      status->set_rank(rank);
      status->set_slot(slot);
      status->set_exited(over);
      status->set_state(over ? v1::DONE : state);
    }
  }
  // Its ranks of the run are gone, and their slots are free.
  void Free(const SimKey& key) {
    held.erase(key);
    std::erase_if(ended, [&](const auto& rank) { return rank.first == key; });
    v1::WorkerMessage message;
    message.mutable_allocation_gone()->set_job_uid(key.first);
    message.mutable_allocation_gone()->set_epoch(key.second);
    Report(std::move(message));
  }
};

}  // namespace mt::daemon
