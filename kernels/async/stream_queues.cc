// What a call waits for is looked at anew for every draw: there are few streams.
#include "kernels/async/stream_queues.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::kernels::async {
namespace {

// A list that nobody reads to its end; the first findings tell the cause.
constexpr size_t kMostFindings = 100;

void AddFinding(std::string text, std::set<std::string>* findings) {
  if (findings->size() < kMostFindings) findings->insert(std::move(text));
}

bool IsCancelled(const AsyncCall& call) { return call.cancelled != nullptr && *call.cancelled; }

// Whether the queue's next call is its part of the meeting.
bool IsAt(const StreamQueue* queue, const Meeting* meeting) {
  return queue != nullptr && !queue->calls.empty() && queue->calls.front().meeting.get() == meeting;
}

bool Overlap(const MemoryUse& use, const void* data, int64_t bytes) {
  const auto a = reinterpret_cast<uintptr_t>(use.data), b = reinterpret_cast<uintptr_t>(data);
  return a < b + static_cast<uintptr_t>(bytes) && b < a + static_cast<uintptr_t>(use.bytes);
}

// For messages. Calls of words and events have no label, so that places are named by others.
std::string LabelOf(const AsyncCall& call) {
  if (!call.word) return call.label;
  return call.word->stores ? "store" : "wait";
}

// All memory that a call may touch, its word included.
std::vector<MemoryUse> WithWord(const AsyncCall& call) {
  std::vector<MemoryUse> uses = call.uses;
  if (call.word) uses.push_back({.name = "word", .data = call.word->at, .bytes = sizeof(uint32_t)});
  return uses;
}

// "s1", and its rank where that is not the one spoken of.
std::string NameFor(const StreamQueue& queue, int rank) {
  return queue.rank == rank ? queue.Name() : fmt::format("{} of rank {}", queue.Name(), queue.rank);
}

std::string WhereOf(const StreamQueue& queue) {
  return fmt::format("{} '{}'", queue.Name(), queue.last);
}

}  // namespace

std::string StreamQueue::Name() const { return fmt::format("s{}", ordinal); }

StreamQueue* StreamQueues::Open(int rank) {
  auto queue = std::make_unique<StreamQueue>();
  queue->rank = rank;
  queue->ordinal = ranks_[rank].num_streams++;
  queue->index = num_opened_++;
  return (queues_[{rank, queue->ordinal}] = std::move(queue)).get();
}

void StreamQueues::Push(StreamQueue* queue, AsyncCall call) {
  call.host = ranks_[queue->rank].host;
  if (call.reaches != nullptr && call.reaches->where.empty()) call.reaches->where = WhereOf(*queue);
  if (!call.label.empty()) queue->last = call.label;
  if (call.meeting != nullptr) call.meeting->queues.at(call.member) = queue;
  queue->calls.push_back(std::move(call));
  ++queue->num_enqueued;
}

void StreamQueues::PushWait(StreamQueue* queue, const std::shared_ptr<const Point>& point) {
  const std::string site = fmt::format("{} waits for {}", WhereOf(*queue), point->where);
  std::optional<WaitName> name = sites_.Enter(queue->rank, site);
  if (name) Push(queue, {.after = {{.point = point}}, .wait = std::move(name)});
}

// The words that a rank stores are another's, who may not have named them yet.
void StreamQueues::PushWord(StreamQueue* queue, const WordUse& use) {
  const std::string site = use.stores ? fmt::format("{} stores {}", WhereOf(*queue), use.value)
                                      : fmt::format("{} waits for {} to be {}", WhereOf(*queue),
                                                    words_.Name(queue->rank, use.at), use.value);
  std::optional<WaitName> name = sites_.Enter(queue->rank, site);
  if (name) Push(queue, {.word = use, .wait = std::move(name)});
}

bool StreamQueues::IsReady(const StreamQueue& queue) {
  if (queue.calls.empty()) return false;
  const AsyncCall& next = queue.calls.front();
  if (IsCancelled(next)) return true;
  if (!std::all_of(next.after.begin(), next.after.end(),
                   [](const AsyncCall::After& after) { return after.point->reached; })) {
    return false;
  }
  if (next.word && !next.word->stores && !next.word->IsReached()) return false;
  if (next.meeting == nullptr) return true;
  // A meeting is drawn by its first member.
  const std::vector<StreamQueue*>& members = next.meeting->queues;
  return members.front() == &queue &&
         std::all_of(members.begin(), members.end(),
                     [&](const StreamQueue* member) { return IsAt(member, next.meeting.get()); });
}

std::vector<StreamQueue*> StreamQueues::Ready() const {
  std::vector<StreamQueue*> ready;
  for (const auto& [key, queue] : queues_) {
    if (IsReady(*queue)) ready.push_back(queue.get());
  }
  return ready;
}

bool StreamQueues::RunOne() {
  const std::vector<StreamQueue*> ready = Ready();
  if (ready.empty()) return false;
  RunNext(order_.Draw(ready));
  return true;
}

void StreamQueues::RunNext(StreamQueue* queue) {
  const AsyncCall& next = queue->calls.front();
  const bool cancelled = IsCancelled(next);
  if (next.meeting != nullptr && !cancelled) return RunMeeting(next.meeting);
  const AsyncCall call = TakeNext(queue);
  if (!cancelled) {
    EnterUses(queue, call);
    if (call.run) call.run();
    if (call.word && call.word->stores) StoreWord(*queue, call);
  }
  End(queue, call);
}

void StreamQueues::RunMeeting(std::shared_ptr<Meeting> meeting) {
  std::vector<AsyncCall> calls;
  VectorClock all;
  for (StreamQueue* const queue : meeting->queues) {
    calls.push_back(TakeNext(queue));
    all.Merge(queue->clock);
  }
  // What came before any member's call comes before the end of each. One that has ended says
  // nothing of the ends of the others.
  for (size_t i = 0; i < calls.size(); ++i) {
    meeting->queues[i]->clock.Merge(all);
    EnterUses(meeting->queues[i], calls[i]);
  }
  meeting->run();
  for (size_t i = 0; i < calls.size(); ++i) End(meeting->queues[i], calls[i]);
}

AsyncCall StreamQueues::TakeNext(StreamQueue* queue) {
  AsyncCall call = std::move(queue->calls.front());
  queue->calls.pop_front();
  order_.Note(*queue, call.label);
  if (call.host != queue->host) {
    queue->clock.Merge(*call.host);
    queue->host = call.host;
  }
  for (const AsyncCall::After& after : call.after) {
    if (!after.orders) continue;
    if (call.wait) EnterWait(queue, *call.wait, after.point->clock);
    queue->clock.Merge(after.point->clock);
  }
  if (!call.word || !call.wait || call.word->stores) return call;
  const VectorClock* const before =
      words_.Acquire(*call.word, queue->index, queue->clock.NumberOf(queue->index), &sites_);
  if (before == nullptr) return call;
  EnterWait(queue, *call.wait, *before);
  queue->clock.Merge(*before);
  return call;
}

void StreamQueues::EnterWait(StreamQueue* queue, const WaitName& wait, const VectorClock& point) {
  std::erase_if(queue->waits, [&](const auto& earlier) {
    const bool covered = point.Covers(earlier.second);
    if (covered) sites_.NoteRedundant(earlier.first);
    return covered;
  });
  if (queue->clock.Covers(point)) return sites_.NoteRedundant(wait);
  queue->waits.emplace_back(wait, point);
}

void StreamQueues::EnterUses(StreamQueue* queue, const AsyncCall& call) {
  if (call.uses.empty()) return;
  queue->waits.clear();
  const int64_t number = queue->clock.Tick(queue->index);
  for (const MemoryUse& use : call.uses) {
    if (use.bytes > 0) EnterUse(*queue, use, call, number);
  }
}

void StreamQueues::EnterUse(const StreamQueue& queue, const MemoryUse& use, const AsyncCall& call,
                            int64_t number) {
  const Allocation* const allocation = AllocationOf(use.data);
  const int rank = allocation == nullptr ? queue.rank : allocation->rank;
  const AccessMap::Caller caller{.name = fmt::format("{} on {}", call.label, NameFor(queue, rank)),
                                 .stream = queue.index,
                                 .number = number,
                                 .clock = &queue.clock};
  for (const std::string& other : ranks_[rank].accesses.Enter(use, caller)) {
    AddFinding(fmt::format("rank {}: '{}' of {} ({}) has no order with {}", rank, use.name,
                           caller.name, use.access == Access::kWrite ? "writes" : "reads", other),
               &races_);
  }
}

void StreamQueues::StoreWord(const StreamQueue& queue, const AsyncCall& call) {
  if (!call.word || !call.wait) return;
  *call.word->at = call.word->value;
  words_.Store(*call.word, *call.wait, queue.clock, &sites_);
}

void StreamQueues::End(StreamQueue* queue, const AsyncCall& call) {
  ++queue->num_done;
  if (call.reaches == nullptr) return;
  call.reaches->reached = true;
  call.reaches->clock = queue->clock;
}

std::string StreamQueues::WhatFor(const StreamQueue& queue) const {
  const AsyncCall& next = queue.calls.front();
  std::string text;
  for (const AsyncCall::After& after : next.after) {
    if (!after.point->reached) text += fmt::format(" waits for {},", after.point->where);
  }
  if (next.word && !next.word->stores && !next.word->IsReached()) {
    text += fmt::format(" waits for {} to be {}, which is {},", words_.NameOf(next.word->at),
                        next.word->value, *next.word->at);
  }
  if (next.meeting != nullptr) {
    text += fmt::format(" is at {}, without member", next.meeting->what);
    for (size_t i = 0; i < next.meeting->queues.size(); ++i) {
      if (!IsAt(next.meeting->queues[i], next.meeting.get())) text += fmt::format(" {},", i);
    }
  }
  return text;
}

std::string StreamQueues::DescribeNext() const {
  std::string text;
  for (const auto& [key, queue] : queues_) {
    if (queue->calls.empty()) continue;
    text += fmt::format("  rank {} {}: '{}'{} {} calls queued\n", queue->rank, queue->Name(),
                        LabelOf(queue->calls.front()), WhatFor(*queue), queue->calls.size());
  }
  return text;
}

void StreamQueues::Learn(int rank, const VectorClock& clock) {
  Rank& of = ranks_[rank];
  if (of.host->Covers(clock)) return;
  auto merged = std::make_shared<VectorClock>(*of.host);
  merged->Merge(clock);
  of.host = std::move(merged);
}

void StreamQueues::Allocate(int rank, const void* data, int64_t bytes, bool shared) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  allocations_[begin] = {
      .end = begin + static_cast<uintptr_t>(bytes), .rank = rank, .shared = shared};
}

const StreamQueues::Allocation* StreamQueues::AllocationOf(const void* data) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  const auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return nullptr;
  const Allocation& allocation = std::prev(next)->second;
  return at < allocation.end ? &allocation : nullptr;
}

MemoryFrom StreamQueues::From(const void* data) const {
  const Allocation* const allocation = AllocationOf(data);
  if (allocation == nullptr) return {};
  return {.bytes = static_cast<int64_t>(allocation->end - reinterpret_cast<uintptr_t>(data)),
          .shared = allocation->shared};
}

void StreamQueues::SetMapped(int rank, const void* data, bool mapped) {
  if (mapped) return mapped_.Begin(rank, data);
  const size_t index = num_opened_++;
  mapped_.End(rank, data, index);
  Rank& of = ranks_[rank];
  auto host = std::make_shared<VectorClock>(*of.host);
  host->Tick(index);
  of.host = std::move(host);
}

void StreamQueues::Free(int rank, std::unique_ptr<DeviceBuffer> buffer) {
  Rank& of = ranks_[rank];
  for (const int other : mapped_.Forget(buffer->data(), buffer->bytes(), *of.host)) {
    AddFinding(fmt::format("rank {}: freed before the host knew that rank {} maps it no more", rank,
                           other),
               &early_frees_);
  }
  for (const std::string& open : of.accesses.Forget(buffer->data(), buffer->bytes(), *of.host)) {
    AddFinding(fmt::format("rank {}: freed before the host knew the end of {}", rank, open),
               &early_frees_);
  }
  words_.Forget(buffer->data(), buffer->bytes());
  allocations_.erase(reinterpret_cast<uintptr_t>(buffer->data()));
  if (NoteQueuedUses(rank, buffer->data(), buffer->bytes()))
    still_used_.push_back(std::move(buffer));
}

bool StreamQueues::NoteQueuedUses(int rank, const void* data, int64_t bytes) {
  bool used = false;
  for (const auto& [key, queue] : queues_) {
    for (const AsyncCall& call : queue->calls) {
      for (const MemoryUse& use : WithWord(call)) {
        if (!Overlap(use, data, bytes)) continue;
        used = true;
        AddFinding(fmt::format("rank {}: freed before '{}' of {} on {} has run", rank, use.name,
                               LabelOf(call), NameFor(*queue, rank)),
                   &early_frees_);
      }
    }
  }
  return used;
}

void StreamQueues::DropRank(int rank) {
  for (const auto& [key, queue] : queues_) {
    if (queue->rank != rank) continue;
    for (AsyncCall& call : queue->calls) {
      if (call.meeting != nullptr) call.meeting->queues.at(call.member) = nullptr;
    }
    queue->calls.clear();
    queue->num_done = queue->num_enqueued;
  }
}

}  // namespace mt::kernels::async
