// Per job and epoch: the values that are known and the links that wait for others.
#include "worker/node/agent/rendezvous_relay.h"

#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::AgentMessage;
using megatrain::v1::WorkerMessage;

void RendezvousRelay::Set(const JobEpoch& job, const std::string& key, const std::string& value) {
  WorkerMessage message;
  auto& set = *message.mutable_rendezvous_set();
  set.set_job_uid(job.first);
  set.set_epoch(job.second);
  set.set_key(key);
  set.set_value(value);
  deps_.report(std::move(message));
  OnValue(job, key, value);
}

void RendezvousRelay::Get(const JobEpoch& job, const std::string& key, LinkId link) {
  Job& entry = jobs_[job];
  const auto value = entry.values.find(key);
  if (value != entry.values.end()) {
    Answer(key, value->second, link);
    return;
  }
  auto& waiting = entry.waiting[key];
  const bool asked = !waiting.empty();
  waiting.insert(link);
  if (!asked) Ask(job, key);
}

void RendezvousRelay::Ask(const JobEpoch& job, const std::string& key) {
  WorkerMessage message;
  auto& get = *message.mutable_rendezvous_get();
  get.set_job_uid(job.first);
  get.set_epoch(job.second);
  get.set_key(key);
  deps_.send_now(message);
}

void RendezvousRelay::Answer(const std::string& key, const std::string& value, LinkId link) {
  AgentMessage message;
  message.mutable_rendezvous_value()->set_key(key);
  message.mutable_rendezvous_value()->set_value(value);
  deps_.links->Send(link, message);
}

void RendezvousRelay::OnValue(const JobEpoch& job, const std::string& key,
                              const std::string& value) {
  Job& entry = jobs_[job];
  entry.values.emplace(key, value);
  const auto waiting = entry.waiting.extract(key);
  if (waiting.empty()) return;
  for (const LinkId link : waiting.mapped()) Answer(key, value, link);
}

void RendezvousRelay::OnRegistered() {
  for (const auto& [job, entry] : jobs_) {
    for (const auto& [key, links] : entry.waiting) Ask(job, key);
  }
}

}  // namespace mt::node
