// One question per job and epoch is open: a save asks, and its rank waits.
#include "worker/node/agent/epoch_relay.h"

#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

void EpochRelay::Ask(const JobEpoch& job, int64_t query_id, LinkId link) {
  asked_[job] = {.query_id = query_id, .link = link};
  megatrain::v1::WorkerMessage message;
  auto& query = *message.mutable_epoch_query();
  query.set_job_uid(job.first);
  query.set_epoch(job.second);
  query.set_query_id(query_id);
  deps_.send_now(message);
}

void EpochRelay::OnAnswer(const megatrain::v1::EpochAnswer& answer) {
  const auto asked = asked_.find({answer.job_uid(), answer.epoch()});
  if (asked == asked_.end() || asked->second.query_id != answer.query_id()) return;
  megatrain::v1::AgentMessage message;
  message.mutable_epoch_answer()->set_query_id(answer.query_id());
  message.mutable_epoch_answer()->set_open(answer.open());
  deps_.links->Send(asked->second.link, message);
  asked_.erase(asked);
}

}  // namespace mt::node
