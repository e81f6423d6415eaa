// Takes each report of a worker on running jobs to where it belongs, after checking that it speaks
// of the epoch that is open on that node (the message fence). Anything else is refused and counted;
// ranks of a closed epoch are ordered to stop, of any other the agent is asked what it holds. Not
// thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class AllocationGone;
class AssignmentReply;
class CommandAck;
class EpochQuery;
class JobReport;
class RankReadings;
class RankReport;
class RankStatus;
class RendezvousGet;
class RendezvousSet;
class RunInfo;
class StepsReport;
}  // namespace megatrain::v1

namespace mt::daemon {

class Feeds;
class JobKeeper;
class Orphans;

class Reports {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    JobKeeper* keeper;
    Orphans* orphans;
    KeyValues* rendezvous;
    Feeds* feeds;
    const base::Clock* clock;
  };
  // All parts outlive it.
  explicit Reports(const Parts& parts) : parts_(parts) {}

  void OnAssignmentReply(WorkerSession& from, const v1::AssignmentReply& reply);
  void OnRank(WorkerSession& from, const v1::RankReport& report);
  void OnSteps(WorkerSession& from, const v1::StepsReport& report);
  void OnJob(WorkerSession& from, const v1::JobReport& report);
  void OnRendezvousSet(WorkerSession& from, const v1::RendezvousSet& set);
  void OnRendezvousGet(WorkerSession& from, const v1::RendezvousGet& get);
  void OnCommandAck(WorkerSession& from, const v1::CommandAck& ack);
  void OnAllocationGone(WorkerSession& from, const v1::AllocationGone& gone);
  // Takes what ranks do now. Readings of anything but the open epoch of a job are dropped silently:
  // they come once a second, and reports tell the rest.
  void OnReadings(const WorkerSession& from, const v1::RankReadings& readings);
  // Says whether the epoch is open, which lets rank 0 raise its fence again.
  void OnEpochQuery(const WorkerSession& from, const v1::EpochQuery& query);
  // Takes over what a registering worker says of a rank that it holds.
  void TakeRankStatus(v1::StoredJob& job, const std::string& node, const v1::RankStatus& status);

  // Counts and logs a message that makes no sense.
  void CountMalformed(const WorkerSession& from, std::string_view what);

  // The numbers of messages of closed epochs, and of messages that make no sense.
  int64_t num_fenced() const { return num_fenced_; }
  int64_t num_malformed() const { return num_malformed_; }

 private:
  // The message fence: the job, where (uid, epoch) is open and held by the sender's node; else
  // nullptr, with the message counted and, once per session, answered: by a kill where the epoch is
  // closed, else by asking for what the node holds.
  v1::StoredJob* Fence(WorkerSession& from, const JobEpoch& key);
  // Notes the end of a rank's process, of whatever epoch it is.
  void NoteEnd(const AllocationKey& key, const v1::RankStatus& status);
  bool HostsRankZero(const WorkerSession& from, const v1::StoredJob& job, std::string_view what);
  void TakeRunInfo(v1::Job* job, const v1::RunInfo& info);
  void SendValue(const std::string& node, const JobEpoch& job, const std::string& key,
                 const std::string& value);

  Parts parts_;
  int64_t num_fenced_ = 0;
  int64_t num_malformed_ = 0;
};

}  // namespace mt::daemon
