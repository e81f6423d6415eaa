// Forwards the numbered messages of the ranks of one job and epoch to the coordinator, and tells
// the ranks what has arrived. A rank numbers what must arrive (RankMessage.seq) and keeps it until
// the agent acknowledges it; it sends all of that again on every new call, so the relay forwards
// each number once. An acknowledgement covers every lower number. Loop thread only; no I/O but
// through its seams.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "worker/node/outbox/outbox.h"
#include "worker/node/ranks/local_rank.h"
#include "worker/node/ranks/rank_links.h"

namespace megatrain::v1 {
class RankMessage;
class StepRecord;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

class ReportRelay {
 public:
  struct Deps {
    RankLinks* links;
    std::string job_uid;
    int64_t epoch;
    // To the coordinator: a report, and a step of this job. `acked` runs once it is on the
    // coordinator's disk.
    std::function<void(megatrain::v1::WorkerMessage, Outbox::Acked acked)> report;
    std::function<void(const megatrain::v1::StepRecord&, Outbox::Acked acked)> report_step;
  };
  explicit ReportRelay(Deps deps);

  // Forwards a step, a job report or the outcome of a command, and raises the rank's step. False if
  // this number was forwarded before. A message without a number is always forwarded. The rank must
  // live until all of its reports are acknowledged.
  bool Forward(LocalRank* rank, const megatrain::v1::RankMessage& message);
  // Acknowledges again what has arrived so far, because the last acknowledgement may have been lost
  // with the rank's previous call.
  void RepeatAck(const LocalRank& rank);

 private:
  struct Numbers {
    int64_t forwarded = 0;
    int64_t acked = 0;
  };

  void Send(const megatrain::v1::RankMessage& message, Outbox::Acked acked);
  void OnAcknowledged(const LocalRank& rank, int64_t seq);

  const Deps deps_;
  std::map<int, Numbers> numbers_;  // by world rank
};

}  // namespace mt::node
