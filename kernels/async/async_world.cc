// Calls run on whichever thread was the last to wait, under the lock.
#include "kernels/async/async_world.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::kernels::async {
namespace {

// A host that polls this often, with nothing to run in between, waits for what never happens.
constexpr int kMostFruitlessPolls = 1000;

}  // namespace

void AsyncWorld::Run(int num_hosts, const std::function<void(int host)>& body) {
  {
    const base::MutexLock lock(&mu_);
    CHECK_EQ(num_hosts_, 0) << "one Run at a time";
    num_hosts_ = num_hosts;
  }
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_hosts));
  const auto run = [&](int host) {
    {
      const base::MutexLock lock(&mu_);
      hosts_.insert(std::this_thread::get_id());
    }
    try {
      body(host);
    } catch (const DeviceError&) {
      errors[static_cast<size_t>(host)] = std::current_exception();
    }
    const base::MutexLock lock(&mu_);
    hosts_.erase(std::this_thread::get_id());
    --num_hosts_;
    changed_.NotifyAll();
  };
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  for (int host = 0; host < num_hosts; ++host) threads.emplace_back(run, host);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

std::vector<std::string> AsyncWorld::Races() const {
  const base::MutexLock lock(&mu_);
  return {queues_.races().begin(), queues_.races().end()};
}

std::vector<std::string> AsyncWorld::EarlyFrees() const {
  const base::MutexLock lock(&mu_);
  return {queues_.early_frees().begin(), queues_.early_frees().end()};
}

std::vector<WaitName> AsyncWorld::NeededWaits() const {
  const base::MutexLock lock(&mu_);
  return queues_.sites().Needed();
}

int64_t AsyncWorld::NumWaits() const {
  const base::MutexLock lock(&mu_);
  return queues_.sites().num_waits();
}

std::pair<int64_t, uint64_t> AsyncWorld::Order() const {
  const base::MutexLock lock(&mu_);
  return {queues_.order().num_calls(), queues_.order().hash()};
}

StreamQueue* AsyncWorld::Open(int rank) {
  const base::MutexLock lock(&mu_);
  return queues_.Open(rank);
}

void AsyncWorld::Enqueue(StreamQueue* queue, AsyncCall call) {
  const base::MutexLock lock(&mu_);
  Await({.kind = HostWait::Kind::kRoom, .rank = queue->rank, .queue = queue});
  fruitless_polls_ = 0;
  queues_.Push(queue, std::move(call));
  if (!waits_.empty()) changed_.NotifyAll();  // for threads that are no hosts
}

void AsyncWorld::WaitFor(StreamQueue* queue, const std::shared_ptr<const Point>& point) {
  const base::MutexLock lock(&mu_);
  Await({.kind = HostWait::Kind::kRoom, .rank = queue->rank, .queue = queue});
  queues_.PushWait(queue, point);
}

void AsyncWorld::UseWord(StreamQueue* queue, const WordUse& use) {
  const base::MutexLock lock(&mu_);
  Await({.kind = HostWait::Kind::kRoom, .rank = queue->rank, .queue = queue});
  fruitless_polls_ = 0;
  queues_.PushWord(queue, use);
  if (!waits_.empty()) changed_.NotifyAll();  // for threads that are no hosts
}

void AsyncWorld::Synchronize(StreamQueue* queue) {
  const base::MutexLock lock(&mu_);
  Await({.kind = HostWait::Kind::kCalls,
         .rank = queue->rank,
         .queue = queue,
         .num_done = queue->num_enqueued});
  queues_.Learn(queue->rank, queue->clock);
}

void AsyncWorld::Synchronize(int rank, const std::shared_ptr<const Point>& point) {
  const base::MutexLock lock(&mu_);
  Await({.kind = HostWait::Kind::kPoint, .rank = rank, .point = point});
  queues_.Learn(rank, point->clock);
}

bool AsyncWorld::IsReached(int rank, const std::shared_ptr<const Point>& point) {
  const base::MutexLock lock(&mu_);
  Await({.kind = HostWait::Kind::kPoll, .rank = rank, .point = point});
  if (point->reached) queues_.Learn(rank, point->clock);
  return point->reached;
}

void AsyncWorld::Cancel(std::atomic<bool>* flag) {
  const base::MutexLock lock(&mu_);
  *flag = true;
  changed_.NotifyAll();
}

void AsyncWorld::Allocate(int rank, const void* data, int64_t bytes, bool shared) {
  const base::MutexLock lock(&mu_);
  queues_.Allocate(rank, data, bytes, shared);
}

MemoryFrom AsyncWorld::From(const void* data) const {
  const base::MutexLock lock(&mu_);
  return queues_.From(data);
}

void AsyncWorld::SetMapped(int rank, const void* data, bool mapped) {
  const base::MutexLock lock(&mu_);
  queues_.SetMapped(rank, data, mapped);
}

void AsyncWorld::Free(int rank, std::unique_ptr<DeviceBuffer> buffer) {
  const base::MutexLock lock(&mu_);
  queues_.Free(rank, std::move(buffer));
}

void AsyncWorld::DropRank(int rank) {
  const base::MutexLock lock(&mu_);
  queues_.DropRank(rank);
  changed_.NotifyAll();
}

// Waiting.

void AsyncWorld::Await(HostWait wait) {
  ThrowIfFailed();
  if (IsOver(wait)) return;
  wait.by_host = hosts_.contains(std::this_thread::get_id());
  waits_.push_back(&wait);
  while (!IsOver(wait) && failure_.empty()) {
    if (!RunOne(/*alone=*/!wait.by_host)) changed_.Wait(&mu_);
  }
  waits_.erase(std::find(waits_.begin(), waits_.end(), &wait));
  changed_.NotifyAll();  // where this thread is no host, another must go on
  ThrowIfFailed();
}

bool AsyncWorld::IsOver(const HostWait& wait) const {
  switch (wait.kind) {
    case HostWait::Kind::kRoom:
      return static_cast<int64_t>(wait.queue->calls.size()) < queue_capacity_;
    case HostWait::Kind::kCalls:
      return wait.queue->num_done >= wait.num_done;
    case HostWait::Kind::kPoint:
      return wait.point->reached;
    case HostWait::Kind::kPoll:
      return wait.point->reached || wait.poll_is_over;
  }
  return true;
}

bool AsyncWorld::MayRun() const {
  int waiting = 0;
  for (const HostWait* const wait : waits_) {
    if (IsOver(*wait)) return false;
    if (wait->by_host) ++waiting;
  }
  return waiting == num_hosts_;
}

bool AsyncWorld::RunOne(bool alone) {
  const bool all_wait = MayRun();
  if (!all_wait && !alone) return false;
  try {
    if (queues_.RunOne()) {
      fruitless_polls_ = 0;
    } else if (all_wait) {
      NothingIsReady();
    } else {
      return false;
    }
  } catch (const DeviceError& error) {
    failure_ = error.what();
  }
  for (HostWait* const wait : waits_) wait->poll_is_over = true;
  changed_.NotifyAll();
  return true;
}

void AsyncWorld::NothingIsReady() {
  const bool polled = std::any_of(waits_.begin(), waits_.end(), [](const HostWait* wait) {
    return wait->kind == HostWait::Kind::kPoll;
  });
  if (polled && ++fruitless_polls_ <= kMostFruitlessPolls) return;
  failure_ = "deadlock: every host waits and no stream's next call is ready\n";
  for (const HostWait* const wait : waits_)
    failure_ += fmt::format("  rank {}'s host waits for {}\n", wait->rank, wait->Describe());
  failure_ += queues_.DescribeNext();
}

std::string AsyncWorld::HostWait::Describe() const {
  switch (kind) {
    case Kind::kRoom:
      return fmt::format("room in {}", queue->Name());
    case Kind::kCalls:
      return fmt::format("the end of {}", queue->Name());
    case Kind::kPoint:
    case Kind::kPoll:
      return point->where;
  }
  return {};
}

void AsyncWorld::ThrowIfFailed() const {
  if (!failure_.empty()) throw DeviceError(failure_);
}

}  // namespace mt::kernels::async
