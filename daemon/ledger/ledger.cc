// The rows in memory: loading, looking up, changing and marking them.
#include "daemon/ledger/ledger.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>

#include "daemon/jobs/job_states.h"
#include "daemon/ledger/ledger_tables.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

constexpr size_t kMaxEndedJobs = 1'000;

std::string KeyText(const AllocationKey& key) {
  return fmt::format("{}/{}/{}", key.job_uid, key.epoch, key.node);
}

AllocationKey KeyOf(const v1::StoredAllocation& allocation) {
  return {allocation.job_uid(), allocation.epoch(), allocation.node()};
}

template <class Message>
Status Parse(std::string_view bytes, Message* message) {
  if (message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return OkStatus();
  return base::DataLoss("the stored message is damaged; restore the store from a backup");
}

// "<uid>/<epoch>/<key>", as PutRendezvous writes it.
Status ParseRendezvousKey(std::string_view text, JobEpoch* job, std::string* key) {
  const size_t first = text.find('/');
  const size_t second = first == std::string_view::npos ? first : text.find('/', first + 1);
  if (second == std::string_view::npos) return base::DataLoss("not a rendezvous key");
  job->job_uid = text.substr(0, first);
  const std::string_view epoch = text.substr(first + 1, second - first - 1);
  const auto parsed = std::from_chars(epoch.data(), epoch.data() + epoch.size(), job->epoch);
  if (parsed.ec != std::errc()) return base::DataLoss("not a rendezvous key");
  *key = text.substr(second + 1);
  return OkStatus();
}

template <class Map>
auto Pointers(Map& map) {
  std::vector<decltype(map.begin()->second.get())> out;
  out.reserve(map.size());
  for (auto& entry : map) out.push_back(entry.second.get());
  return out;
}

void SortByAge(std::vector<v1::Operation*>* operations) {
  std::ranges::sort(*operations, [](const v1::Operation* a, const v1::Operation* b) {
    return std::make_pair(a->created_us(), a->name()) < std::make_pair(b->created_us(), b->name());
  });
}

}  // namespace

Ledger::Ledger(Store* store, const base::Clock* clock)
    : store_(store), clock_(clock), tables_(std::make_unique<Tables>()) {}

Ledger::~Ledger() = default;

int64_t Ledger::NowMicros() const { return base::ToUnixMicros(clock_->WallNow()); }

int64_t Ledger::NextCreatedMicros() const { return std::max(NowMicros(), newest_created_us_ + 1); }

void Ledger::IndexJob(const v1::Job& job) {
  std::string& newest = tables_->newest_by_name[fmt::format("{}/{}", job.namespace_(), job.name())];
  const v1::StoredJob* old = FindJob(newest);
  if (old == nullptr || old->job().created_us() <= job.created_us()) newest = job.uid();
  if (!IsFinal(job.state())) tables_->live.insert(job.uid());
  newest_created_us_ = std::max(newest_created_us_, job.created_us());
}

Status Ledger::LoadJobs() {
  return store_->ForEach(Table::kJobs, [this](std::string_view key, std::string_view value) {
    auto job = std::make_unique<v1::StoredJob>();
    RETURN_IF_ERROR(Parse(value, job.get()));
    if (job->job().uid() != key) return base::DataLoss("the row holds job '{}'", job->job().uid());
    if (job->deleted()) {
      tables_->deleted.emplace(key, std::move(job));
      return OkStatus();
    }
    IndexJob(tables_->jobs.emplace(key, std::move(job)).first->second->job());
    return OkStatus();
  });
}

Status Ledger::Load(KeyValues* rendezvous) {
  Tables& t = *tables_;
  // One message per row, by the row's key.
  const auto load = [this](Table table, auto* map) {
    using Message = typename std::remove_pointer_t<decltype(map)>::mapped_type::element_type;
    return store_->ForEach(table, [map](std::string_view key, std::string_view value) {
      auto message = std::make_unique<Message>();
      RETURN_IF_ERROR(Parse(value, message.get()));
      map->emplace(key, std::move(message));
      return OkStatus();
    });
  };
  const auto load_value = [rendezvous](std::string_view text, std::string_view value) {
    JobEpoch job;
    std::string key;
    RETURN_IF_ERROR(ParseRendezvousKey(text, &job, &key));
    return rendezvous->Set(job, key, value).status();
  };
  RETURN_IF_ERROR(LoadJobs());
  RETURN_IF_ERROR(load(Table::kOperations, &t.operations));
  for (const auto& [name, operation] : t.operations) NoteOpen(*operation);
  RETURN_IF_ERROR(load(Table::kRequests, &t.requests));
  RETURN_IF_ERROR(load(Table::kWorkers, &t.workers));
  RETURN_IF_ERROR(load(Table::kAllocations, &t.allocations));
  for (const auto& [key, allocation] : t.allocations) t.held.Set(key, *allocation);
  RETURN_IF_ERROR(load(Table::kCluster, &t.cluster));
  RETURN_IF_ERROR(store_->ForEach(Table::kRendezvous, load_value));
  ASSIGN_OR_RETURN(const std::string last_event, store_->LastKey(Table::kEvents));
  if (!last_event.empty()) {
    std::from_chars(last_event.data(), last_event.data() + last_event.size(), next_event_);
    ++next_event_;
  }
  return store_->ForEachNewest(Table::kEvents, last_event,
                               [this](std::string_view, std::string_view value) {
                                 v1::Event event;
                                 if (Parse(value, &event).ok()) newest_event_us_ = event.time_us();
                                 return false;
                               });
}

v1::StoredCluster& Ledger::Cluster() {
  auto& row = tables_->cluster[kSelf];
  if (row == nullptr) row = std::make_unique<v1::StoredCluster>();
  return *row;
}

void Ledger::MarkCluster(bool urgent) { Mark(Table::kCluster, kSelf, urgent); }

v1::StoredJob* Ledger::FindJob(std::string_view uid) { return FindIn(tables_->jobs, uid); }

v1::StoredJob* Ledger::FindJobByName(std::string_view job_namespace, std::string_view name) {
  const auto it = tables_->newest_by_name.find(fmt::format("{}/{}", job_namespace, name));
  return it == tables_->newest_by_name.end() ? nullptr : FindJob(it->second);
}

v1::StoredJob* Ledger::AddJob(std::unique_ptr<v1::StoredJob> job) {
  const std::string uid = job->job().uid();
  v1::StoredJob* kept = tables_->jobs.emplace(uid, std::move(job)).first->second.get();
  IndexJob(kept->job());
  MarkJob(*kept, Change::kState);
  return kept;
}

void Ledger::EraseJob(std::string_view uid) {
  const auto it = tables_->jobs.find(uid);
  if (it == tables_->jobs.end()) return;
  const std::unique_ptr<v1::StoredJob> job = std::move(it->second);
  const std::string key = it->first;
  tables_->jobs.erase(it);
  tables_->live.erase(key);
  published_.erase(key);
  auto tombstone = std::make_unique<v1::StoredJob>();
  tombstone->set_deleted(true);
  v1::Job* kept = tombstone->mutable_job();
  kept->set_uid(key);
  kept->set_name(job->job().name());
  kept->set_namespace_(job->job().namespace_());
  kept->set_state(job->job().state());
  kept->set_epoch(job->job().epoch());
  kept->set_created_us(job->job().created_us());
  kept->set_finished_us(job->job().finished_us());
  if (job->has_directory_given()) tombstone->set_directory_given(job->directory_given());
  kept->mutable_spec()->mutable_checkpoint()->set_directory(
      job->job().spec().checkpoint().directory());
  // Its history stays while another job has a run of it (run_jobs.h).
  if (job->job().has_run()) kept->mutable_run()->set_id(job->job().run().id());
  *tombstone->mutable_runs() = job->runs();
  tables_->deleted.emplace(key, std::move(tombstone));
  // The name may now mean an older job.
  tables_->newest_by_name.erase(fmt::format("{}/{}", kept->namespace_(), kept->name()));
  for (const auto& [other, stored] : tables_->jobs) {
    if (stored->job().name() == kept->name() && stored->job().namespace_() == kept->namespace_())
      IndexJob(stored->job());
  }
  erased_.push_back(key);
  Mark(Table::kJobs, key, /*urgent=*/true);
}

const v1::StoredJob* Ledger::FindDeleted(std::string_view uid) const {
  return FindIn(tables_->deleted, uid);
}

std::vector<std::string> Ledger::DeletedJobs() const {
  std::vector<std::string> uids;
  for (const auto& [uid, trace] : tables_->deleted) uids.push_back(uid);
  return uids;
}

std::vector<std::string> Ledger::EndedInDirectory(std::string_view directory) const {
  std::vector<std::pair<int64_t, std::string>> ended;
  const auto collect = [&](const auto& jobs) {
    for (const auto& [uid, stored] : jobs) {
      const v1::Job& job = stored->job();
      if (IsFinal(job.state()) && job.spec().checkpoint().directory() == directory)
        ended.emplace_back(job.finished_us(), uid);
    }
  };
  collect(tables_->jobs);
  collect(tables_->deleted);
  std::ranges::sort(ended);
  if (ended.size() > kMaxEndedJobs)
    ended.erase(ended.begin(), ended.end() - static_cast<std::ptrdiff_t>(kMaxEndedJobs));
  std::vector<std::string> uids;
  uids.reserve(ended.size());
  for (auto& [time, uid] : ended) uids.push_back(std::move(uid));
  return uids;
}

void Ledger::MarkJob(const v1::StoredJob& job, Change change) {
  const std::string& uid = job.job().uid();
  if (IsFinal(job.job().state())) tables_->live.erase(uid);
  const bool silent = change == Change::kProgress || change == Change::kOwn;
  if (!silent) {
    // The etag changes at once, not with the commit: of two updates in one round the second must
    // see the first.
    v1::Job* shown = FindJob(uid)->mutable_job();
    shown->set_etag(std::to_string(std::strtoll(shown->etag().c_str(), nullptr, 10) + 1));
    published_.insert(uid);
  }
  Mark(Table::kJobs, uid, change == Change::kState || change == Change::kOwn);
}

std::vector<v1::StoredJob*> Ledger::Jobs() { return Pointers(tables_->jobs); }

std::vector<v1::StoredJob*> Ledger::LiveJobs() {
  std::vector<v1::StoredJob*> out;
  out.reserve(tables_->live.size());
  for (const std::string& uid : tables_->live) out.push_back(FindJob(uid));
  return out;
}

void Ledger::ForEachEver(const std::function<void(const v1::StoredJob&)>& see) const {
  for (const auto& [uid, job] : tables_->jobs) see(*job);
  for (const auto& [uid, trace] : tables_->deleted) see(*trace);
}

v1::Operation* Ledger::FindOperation(std::string_view name) {
  return FindIn(tables_->operations, name);
}

v1::Operation* Ledger::AddOperation(std::unique_ptr<v1::Operation> operation) {
  const std::string name = operation->name();
  v1::Operation* kept = tables_->operations.emplace(name, std::move(operation)).first->second.get();
  MarkOperation(*kept);
  return kept;
}

void Ledger::NoteOpen(const v1::Operation& operation) {
  if (!operation.done()) {
    tables_->open_operations[operation.target()].insert(operation.name());
    return;
  }
  const auto open = tables_->open_operations.find(operation.target());
  if (open == tables_->open_operations.end()) return;
  open->second.erase(operation.name());
  if (open->second.empty()) tables_->open_operations.erase(open);
}

void Ledger::MarkOperation(const v1::Operation& operation) {
  NoteOpen(operation);
  Mark(Table::kOperations, operation.name(), /*urgent=*/true);
}

std::vector<v1::Operation*> Ledger::Operations() {
  auto out = Pointers(tables_->operations);
  SortByAge(&out);
  return out;
}

std::vector<v1::Operation*> Ledger::OpenOperations(std::string_view job_uid) {
  std::vector<v1::Operation*> out;
  const auto open = tables_->open_operations.find(job_uid);
  if (open == tables_->open_operations.end()) return out;
  for (const std::string& name : open->second) out.push_back(FindOperation(name));
  SortByAge(&out);
  return out;
}

const v1::StoredRequest* Ledger::FindRequest(std::string_view request_id) const {
  return FindIn(tables_->requests, request_id);
}

void Ledger::AddRequest(std::unique_ptr<v1::StoredRequest> request) {
  const std::string id = request->request_id();
  tables_->requests.emplace(id, std::move(request));
  Mark(Table::kRequests, id, /*urgent=*/true);
}

v1::StoredAllocation* Ledger::FindAllocation(const AllocationKey& key) {
  return FindIn(tables_->allocations, KeyText(key));
}

v1::StoredAllocation* Ledger::AddAllocation(std::unique_ptr<v1::StoredAllocation> allocation) {
  const std::string key = KeyText(KeyOf(*allocation));
  v1::StoredAllocation* kept =
      tables_->allocations.insert_or_assign(key, std::move(allocation)).first->second.get();
  MarkAllocation(*kept);
  return kept;
}

void Ledger::MarkAllocation(const v1::StoredAllocation& allocation) {
  const std::string key = KeyText(KeyOf(allocation));
  tables_->held.Set(key, allocation);
  Mark(Table::kAllocations, key, /*urgent=*/true);
}

void Ledger::EraseAllocation(const AllocationKey& key) {
  const std::string text = KeyText(key);
  tables_->allocations.erase(text);
  tables_->held.Erase(text);
  Mark(Table::kAllocations, text, /*urgent=*/true);
}

std::vector<v1::StoredAllocation*> Ledger::AllocationsOfJob(std::string_view job_uid) {
  std::vector<v1::StoredAllocation*> out;
  const std::string prefix = fmt::format("{}/", job_uid);
  for (auto it = tables_->allocations.lower_bound(prefix);
       it != tables_->allocations.end() && it->first.starts_with(prefix); ++it) {
    out.push_back(it->second.get());
  }
  return out;
}

std::vector<v1::StoredAllocation*> Ledger::AllocationsOnNode(std::string_view node) {
  std::vector<v1::StoredAllocation*> out;
  for (const auto& [key, allocation] : tables_->allocations) {
    if (allocation->node() == node) out.push_back(allocation.get());
  }
  return out;
}

uint64_t Ledger::HeldDigest(std::string_view node) const { return tables_->held.Of(node); }

std::vector<v1::StoredAllocation*> Ledger::Allocations() { return Pointers(tables_->allocations); }

v1::StoredWorker* Ledger::FindWorker(std::string_view node) {
  return FindIn(tables_->workers, node);
}

v1::StoredWorker* Ledger::PutWorker(std::unique_ptr<v1::StoredWorker> worker) {
  const std::string node = worker->node().name();
  v1::StoredWorker* kept =
      tables_->workers.insert_or_assign(node, std::move(worker)).first->second.get();
  MarkWorker(*kept, /*urgent=*/true);
  return kept;
}

void Ledger::MarkWorker(const v1::StoredWorker& worker, bool urgent) {
  Mark(Table::kWorkers, worker.node().name(), urgent);
}

void Ledger::EraseWorker(std::string_view node) {
  const auto it = tables_->workers.find(node);
  if (it == tables_->workers.end()) return;
  const std::string key = it->first;
  tables_->workers.erase(it);
  Mark(Table::kWorkers, key, /*urgent=*/true);
}

std::vector<v1::StoredWorker*> Ledger::Workers() { return Pointers(tables_->workers); }

}  // namespace mt::daemon
