// Ledger's way to the disk: marks become one batch, and what waited for it runs afterwards.
#include <cstdlib>
#include <limits>

#include "common/base/check.h"
#include "common/control/numbers.h"
#include "daemon/ledger/ledger.h"
#include "daemon/ledger/ledger_tables.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

std::string RendezvousKey(const JobEpoch& job, std::string_view key) {
  return fmt::format("{}/{}/{}", job.job_uid, job.epoch, key);
}

}  // namespace

void Ledger::PutRendezvous(const JobEpoch& job, std::string_view key, std::string_view value) {
  extra_.push_back({Table::kRendezvous, RendezvousKey(job, key), std::string(value), NowMicros()});
}

void Ledger::EraseRendezvous(const JobEpoch& job, std::string_view key) {
  extra_.push_back({Table::kRendezvous, RendezvousKey(job, key), std::nullopt, 0});
}

void Ledger::AddEvent(const EventText& text) {
  auto event = std::make_shared<v1::Event>();
  event->set_seq(next_event_++);
  event->set_time_us(NowMicros());
  event->set_type(text.type);
  event->set_message(text.message);
  event->set_job_uid(text.job_uid);
  if (const v1::StoredJob* job = FindJob(text.job_uid); job != nullptr) {
    event->set_job(fmt::format("{}/{}", job->job().namespace_(), job->job().name()));
    event->set_run(job->job().run().id());
  }
  event->set_node(text.node);
  event->set_actor(text.actor);
  event->set_reason(text.reason);
  event->set_operation(text.operation);
  event->set_cause(text.cause);
  event->set_from(text.from);
  event->set_to(text.to);
  event->set_step(text.step);
  event->set_word_step(text.word_step);
  extra_.push_back({Table::kEvents, fmt::format("{:020}", event->seq()), event->SerializeAsString(),
                    event->time_us()});
  new_events_.push_back(std::move(event));
}

void Ledger::AfterCommit(std::function<void(const Status&)> action) {
  actions_.push_back(std::move(action));
}

void Ledger::AfterRound(std::function<void(const Status&)> action) {
  round_actions_.push_back(std::move(action));
}

void Ledger::Mark(Table table, std::string key, bool urgent) {
  marks_.emplace(table, std::move(key));
  urgent_ |= urgent;
}

Write Ledger::MakeWrite(Table table, const std::string& key) {
  Write write{table, key, std::nullopt, NowMicros()};
  const auto put = [&write](const auto* message) {
    if (message != nullptr) write.value = message->SerializeAsString();
  };
  switch (table) {
    case Table::kJobs: {
      const v1::StoredJob* job = FindJob(key);
      put(job != nullptr ? job : FindIn(tables_->deleted, key));
      break;
    }
    case Table::kOperations: {
      const v1::Operation* operation = FindOperation(key);
      put(operation);
      // Retention counts from the end.
      if (operation != nullptr && !operation->done())
        write.time_us = std::numeric_limits<int64_t>::max();
      break;
    }
    case Table::kRequests:
      put(FindRequest(key));
      break;
    case Table::kAllocations:
      put(FindIn(tables_->allocations, key));
      break;
    case Table::kCluster:
      put(&Cluster());
      break;
    case Table::kWorkers:
      put(FindWorker(key));
      break;
    case Table::kEvents:
    case Table::kRendezvous:
      CHECK(false) << "these are written as they come";
  }
  return write;
}

// What one commit writes.
struct Ledger::Round {
  std::set<MarkKey> written;
  std::vector<Write> extra;
  std::set<std::string> published;
  Events events;
  std::vector<std::string> erased;
};

Ledger::Round Ledger::TakeRound() {
  urgent_ = false;
  return {.written = std::exchange(marks_, {}),
          .extra = std::exchange(extra_, {}),
          .published = std::exchange(published_, {}),
          .events = std::exchange(new_events_, {}),
          .erased = std::exchange(erased_, {})};
}

void Ledger::PutBack(Round round) {
  // Nothing was marked since it was taken.
  urgent_ = true;
  marks_ = std::move(round.written);
  extra_ = std::move(round.extra);
  published_ = std::move(round.published);
  new_events_ = std::move(round.events);
  erased_ = std::move(round.erased);
}

Status Ledger::WriteRound() {
  Round round = TakeRound();
  std::vector<Write> batch = round.extra;
  for (const auto& [table, key] : round.written) batch.push_back(MakeWrite(table, key));
  Status status = store_->Commit(batch);
  if (absl::IsResourceExhausted(status) && patient_) {
    PutBack(std::move(round));
    refusal_ = std::move(status);
    next_try_ = clock_->Now() + control::kStoreRetry;
    return OkStatus();
  }
  refusal_ = OkStatus();
  broken_ = status;
  if (status.ok()) RunHooks(round);
  return status;
}

bool Ledger::WillWrite(bool flush) const {
  if (!has_unwritten() || !(urgent_ || flush)) return false;
  return refusal_.ok() || !patient_ || clock_->Now() >= next_try_;
}

Status Ledger::Commit(bool flush) {
  Status status = broken_;
  if (status.ok() && WillWrite(flush)) status = WriteRound();
  // An action may add others; those belong to the next commit.
  const auto run = [&status](const auto& actions) {
    for (const auto& action : actions) action(status);
  };
  if (refusal_.ok()) run(std::exchange(actions_, {}));
  run(std::exchange(round_actions_, {}));
  return status;
}

void Ledger::RunHooks(const Round& round) {
  if (event_hook_ && !round.events.empty()) event_hook_(round.events);
  for (const std::string& uid : round.published) {
    const v1::StoredJob* job = FindJob(uid);
    if (job_hook_ && job != nullptr) job_hook_(job->job());
  }
  for (const std::string& uid : round.erased) {
    if (erased_hook_) erased_hook_(uid);
  }
  if (!worker_hook_) return;
  for (const auto& [table, key] : round.written) {
    const v1::StoredWorker* worker = table == Table::kWorkers ? FindWorker(key) : nullptr;
    if (worker != nullptr) worker_hook_(*worker);
  }
}

Status Ledger::PurgeOlderThan(base::WallTime now) {
  const int64_t requests_us = base::ToUnixMicros(now - control::kRequestIdsKept);
  RETURN_IF_ERROR(store_->Purge(Table::kRequests, requests_us));
  RETURN_IF_ERROR(store_->Purge(Table::kOperations, requests_us));
  RETURN_IF_ERROR(store_->Purge(Table::kEvents, base::ToUnixMicros(now - control::kEventsKept)));
  std::erase_if(tables_->operations, [&](const auto& entry) {
    return entry.second->done() && entry.second->finished_us() < requests_us;
  });
  // The store purges by the time of writing, which memory does not keep: what it has left is read
  // back.
  std::set<std::string> kept;
  RETURN_IF_ERROR(
      store_->ForEach(Table::kRequests, [&kept](std::string_view key, std::string_view) {
        kept.emplace(key);
        return OkStatus();
      }));
  std::erase_if(tables_->requests, [&](const auto& entry) {
    return !kept.contains(entry.first) && !marks_.contains({Table::kRequests, entry.first});
  });
  return OkStatus();
}

}  // namespace mt::daemon
