// Why no ring is lost: a waiter announces itself, then looks at the counter; a ringer raises the
// counter, then looks for the announcement. Both in sequentially consistent order, so one of the
// two sees the other. A ring that comes before the waiter sleeps has changed the bell's value, and
// then the kernel does not put it to sleep.
#include "worker/comm/shm/waits.h"

#include <algorithm>
#include <chrono>
#include <sched.h>
#include <utility>

#include "worker/comm/shm/futex.h"

namespace mt::comm {
namespace {

using std::chrono::microseconds;

// How long a wait looks before it sleeps: longer than peers in step are apart, short beside the
// work that a member does between two waits.
constexpr microseconds kSpin{50};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ShmWaits::ShmWaits(GroupSpec spec, ShmSegment* segment, std::chrono::milliseconds look_at_seats)
    : spec_(std::move(spec)), segment_(segment), look_at_seats_(look_at_seats) {}

bool ShmWaits::Spin(const std::atomic<uint64_t>& counter, uint64_t target) const {
  if (counter.load(std::memory_order_acquire) >= target) return true;
  const base::MonotonicTime end = base::Clock::Real()->Now() + kSpin;
  do {
    for (int look = 0; look < 32; ++look) {
      if (counter.load(std::memory_order_acquire) >= target) return true;
      Pause();
    }
    // There may be more ranks than cores, and the one that is waited for may need this one.
    ::sched_yield();
  } while (base::Clock::Real()->Now() < end);
  return false;
}

Status ShmWaits::Await(const std::atomic<uint64_t>& counter, uint64_t target, int peer,
                       base::MonotonicTime deadline) {
  // However quick the others are: who aborts is answered.
  if (broken_) return base::Error(absl::StatusCode::kAborted, "aborted");
  if (Spin(counter, target)) return OkStatus();
  base::MonotonicTime next_look = base::Clock::Real()->Now() + look_at_seats_;
  for (;;) {
    me().asleep.store(1);
    const uint32_t rung = me().bell.load();
    const base::MonotonicTime now = base::Clock::Real()->Now();
    const bool look_at_seats = now >= next_look;
    if (look_at_seats) next_look = now + look_at_seats_;
    Status trouble = Trouble(peer, look_at_seats);
    if (trouble.ok() && now >= deadline) {
      trouble = base::Error(absl::StatusCode::kDeadlineExceeded,
                            "{} did not do its part within the deadline; see its log",
                            DescribePeer(peer));
    }
    // Looked at last: what a peer did before it went is done.
    const bool done = counter.load() >= target;
    if (done || !trouble.ok()) {
      me().asleep.store(0);
      return done ? OkStatus() : trouble;
    }
    FutexWait(me().bell, rung, std::min(next_look, deadline) - now);
    me().asleep.store(0);
  }
}

const char* ShmWaits::WhyGone(int index, bool look_at_seats) const {
  // The seat first: a member leaves before it gives its seat up.
  const bool seated = !look_at_seats || segment_->IsSeated(index);
  const MemberState state = segment_->member(index).state.load();
  if (state == MemberState::kBroken) return "it has broken the group";
  if (state == MemberState::kLeft) return "it has left the group";
  return seated ? nullptr : "its process is gone";
}

Status ShmWaits::Trouble(int peer, bool look_at_seats) const {
  if (broken_) return base::Error(absl::StatusCode::kAborted, "aborted");
  const auto matters = [&](int index, bool look) {
    if (index == spec_.my_index || WhyGone(index, look) == nullptr) return false;
    return index == peer || segment_->member(index).state.load() != MemberState::kLeft;
  };
  bool any = false;
  for (int index = 0; index < size(); ++index) any |= matters(index, look_at_seats);
  if (!any) return OkStatus();
  // Who broke the group may have done so because another died: those without a word come first.
  std::string dead;
  std::string others;
  const auto add = [&](std::string* text, int index) {
    *text += fmt::format("{}{}: {}", text->empty() ? "" : "; ", DescribePeer(index),
                         WhyGone(index, true));
  };
  for (int index = 0; index < size(); ++index) {
    if (!matters(index, true)) continue;
    const bool is_dead = segment_->member(index).state.load() == MemberState::kHere;
    add(is_dead ? &dead : &others, index);
  }
  if (dead.empty()) dead.swap(others);
  if (!others.empty()) others = "; also gone: " + others;
  return base::Unavailable("lost {}; its log has the cause{}", dead, others);
}

Status ShmWaits::CheckPeer(int peer) const { return Trouble(peer, false); }

void ShmWaits::Ring(int peer) const {
  MemberBlock& block = segment_->member(peer);
  if (block.asleep.load() == 0) return;
  block.bell.fetch_add(1);
  FutexWakeAll(block.bell);
}

void ShmWaits::RingAll() const {
  for (int index = 0; index < size(); ++index) Ring(index);
}

void ShmWaits::Break() {
  broken_ = true;
  me().state.store(MemberState::kBroken);
  RingAll();
}

void ShmWaits::Leave() {
  if (!broken_) me().state.store(MemberState::kLeft);
  RingAll();
}

std::string ShmWaits::DescribePeer(int index) const {
  return fmt::format("rank {} (world {})", index, spec_.members[static_cast<size_t>(index)]);
}

}  // namespace mt::comm
