// The highest number forwarded and the highest one acknowledged are all that the relay keeps of a
// rank; the outbox keeps the reports.
#include "worker/node/ranks/report_relay.h"

#include <algorithm>
#include <utility>

#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::AgentMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::WorkerMessage;

ReportRelay::ReportRelay(Deps deps) : deps_(std::move(deps)) {}

bool ReportRelay::Forward(LocalRank* rank, const RankMessage& message) {
  const int64_t seq = message.seq();
  Numbers& numbers = numbers_[rank->rank];
  if (seq > 0 && seq <= numbers.forwarded) return false;
  numbers.forwarded = std::max(numbers.forwarded, seq);
  rank->step = std::max(rank->step, message.step().step());
  Send(message, [this, rank, seq] { OnAcknowledged(*rank, seq); });
  return true;
}

void ReportRelay::Send(const RankMessage& message, Outbox::Acked acked) {
  if (message.has_step()) return deps_.report_step(message.step(), std::move(acked));
  WorkerMessage report;
  auto& job_report = *report.mutable_job_report();
  if (message.has_job_report()) {
    job_report = message.job_report();
  } else {
    *job_report.mutable_command_done() = message.command_done();
  }
  job_report.set_job_uid(deps_.job_uid);
  job_report.set_epoch(deps_.epoch);
  job_report.set_rank_seq(message.seq());
  deps_.report(std::move(report), std::move(acked));
}

void ReportRelay::OnAcknowledged(const LocalRank& rank, int64_t seq) {
  int64_t& acked = numbers_[rank.rank].acked;
  acked = std::max(acked, seq);
  RepeatAck(rank);
}

void ReportRelay::RepeatAck(const LocalRank& rank) {
  const int64_t acked = numbers_[rank.rank].acked;
  if (rank.link == kNoLink || acked == 0) return;
  AgentMessage message;
  message.mutable_ack()->set_seq(acked);
  deps_.links->Send(rank.link, message);
}

}  // namespace mt::node
