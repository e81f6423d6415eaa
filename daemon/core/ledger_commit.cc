// Ledger's way to the disk: marks become one batch, and what waited for it runs afterwards.
#include <cstdlib>
#include <limits>

#include "common/base/check.h"
#include "common/rpc/control_numbers.h"
#include "daemon/core/ledger.h"
#include "daemon/core/ledger_tables.h"
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
  v1::Event event;
  event.set_seq(next_event_++);
  event.set_time_us(NowMicros());
  event.set_type(text.type);
  event.set_message(text.message);
  event.set_job_uid(text.job_uid);
  event.set_node(text.node);
  event.set_actor(text.actor);
  extra_.push_back({Table::kEvents, fmt::format("{:020}", event.seq()), event.SerializeAsString(),
                    event.time_us()});
}

void Ledger::AfterCommit(std::function<void(const Status&)> action) {
  actions_.push_back(std::move(action));
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
    case Table::kJobs:
      put(FindJob(key));
      break;
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
    case Table::kWorkers:
      put(FindWorker(key));
      break;
    case Table::kEvents:
    case Table::kRendezvous:
      CHECK(false) << "these are written as they come";
  }
  return write;
}

Status Ledger::Commit(bool flush) {
  Status status = broken_;
  std::set<MarkKey> written;
  std::set<std::string> published;
  if (status.ok() && (urgent_ || flush) && !(marks_.empty() && extra_.empty())) {
    for (const std::string& uid : published_) {
      v1::Job* job = FindJob(uid)->mutable_job();
      job->set_etag(std::to_string(std::strtoll(job->etag().c_str(), nullptr, 10) + 1));
    }
    std::vector<Write> batch = std::exchange(extra_, {});
    written = std::exchange(marks_, {});
    published = std::exchange(published_, {});
    urgent_ = false;
    for (const auto& [table, key] : written) batch.push_back(MakeWrite(table, key));
    status = store_->Commit(batch);
    if (!status.ok()) broken_ = status;
  }
  if (status.ok()) RunHooks(written, published);
  // An action may add others; those belong to the next commit.
  const auto actions = std::exchange(actions_, {});
  for (const auto& action : actions) action(status);
  return status;
}

void Ledger::RunHooks(const std::set<MarkKey>& written, const std::set<std::string>& published) {
  if (job_hook_) {
    for (const std::string& uid : published) job_hook_(FindJob(uid)->job());
  }
  if (!worker_hook_) return;
  for (const auto& [table, key] : written) {
    if (table == Table::kWorkers) worker_hook_(*FindWorker(key));
  }
}

Status Ledger::PurgeOlderThan(base::WallTime now) {
  const int64_t requests_us = base::ToUnixMicros(now - rpc::kRequestIdsKept);
  RETURN_IF_ERROR(store_->Purge(Table::kRequests, requests_us));
  RETURN_IF_ERROR(store_->Purge(Table::kOperations, requests_us));
  RETURN_IF_ERROR(store_->Purge(Table::kEvents, base::ToUnixMicros(now - rpc::kEventsKept)));
  std::erase_if(tables_->operations, [&](const auto& entry) {
    return entry.second->done() && entry.second->finished_us() < requests_us;
  });
  // The store went by the time of writing, which no request outlives in memory for long: read it
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
