// Each member has a word for every peer and kind; a far-ahead value is the end of all waits.
#include "worker/comm/copies/peer_words.h"

#include <utility>

#include "common/base/check.h"

namespace mt::comm {
namespace {

// So far ahead a word is set to end all waits for it.
constexpr uint32_t kFarAhead = uint32_t{1} << 28;

}  // namespace

PeerWords::PeerWords(Args args)
    : args_(std::move(args)), ends_{args_.device->CreateEvent(), args_.device->CreateEvent()} {}

uint32_t* PeerWords::Own(int peer, Kind kind) const {
  return static_cast<uint32_t*>(args_.own->data()) + kind * size() + peer;
}

uint32_t* PeerWords::At(int peer, Kind kind) const {
  return static_cast<uint32_t*>(args_.peers[static_cast<size_t>(peer)]->data()) + kind * size() +
         args_.my_index;
}

void PeerWords::Tell(kernels::Stream& stream, int peer, Kind kind, uint32_t number) {
  stream.WriteValue(At(peer, kind), number);
}

void PeerWords::Await(kernels::Stream& stream, int peer, Kind kind, uint32_t number) {
  stream.WaitValue(Own(peer, kind), number);
}

// Without the lock while it enqueues: where the queue is full, only Break may make room in it.
void PeerWords::EndCall(kernels::Stream& stream, uint32_t number) {
  size_t next = 0;
  {
    const base::MutexLock lock(&mu_);
    CHECK(!left_) << "a call of a group that was left";
    next = 1 - latest_;
  }
  ends_[next]->Record(stream);
  bool broken = false;
  {
    const base::MutexLock lock(&mu_);
    latest_ = next;
    latest_number_ = number;
    broken = broken_;
  }
  // Break knew nothing of this call, whose stores undo what it has stored.
  if (!broken) return;
  for (const Rescue::Store& store : PeersFarAhead(number))
    stream.WriteValue(store.word, store.value);
}

std::vector<Rescue::Store> PeerWords::OwnFarAhead(uint32_t number) const {
  std::vector<Rescue::Store> stores;
  for (int peer = 0; peer < size(); ++peer) {
    for (const Kind kind : {kEntered, kArrived})
      stores.push_back({Own(peer, kind), number + kFarAhead});
  }
  return stores;
}

std::vector<Rescue::Store> PeerWords::PeersFarAhead(uint32_t number) const {
  std::vector<Rescue::Store> stores;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == args_.my_index) continue;
    for (const Kind kind : {kEntered, kArrived})
      stores.push_back({At(peer, kind), number + kFarAhead});
  }
  return stores;
}

void PeerWords::Break() {
  size_t latest = 0;
  uint32_t number = 0;
  {
    const base::MutexLock lock(&mu_);
    if (std::exchange(broken_, true) || left_) return;
    latest = latest_;
    number = latest_number_;
  }
  args_.rescue->StoreNow(OwnFarAhead(number));
  // A peer may have done the same: stores of this member that were still queued undo it.
  args_.rescue->StoreBehind(*ends_[latest], PeersFarAhead(number));
}

void PeerWords::BreakAgain() {
  uint32_t number = 0;
  {
    const base::MutexLock lock(&mu_);
    if (!broken_ || left_) return;
    number = latest_number_;
  }
  args_.rescue->StoreNow(OwnFarAhead(number));
}

bool PeerWords::Leave() {
  size_t latest = 0;
  {
    const base::MutexLock lock(&mu_);
    if (broken_ || std::exchange(left_, true)) return false;
    latest = latest_;
  }
  ends_[latest]->Synchronize();
  for (auto& peer : args_.peers) peer.reset();
  return true;
}

bool PeerWords::IsDone() {
  size_t latest = 0;
  {
    const base::MutexLock lock(&mu_);
    latest = latest_;
  }
  return ends_[latest]->IsDone();
}

std::vector<uint32_t> PeerWords::Entered() {
  std::vector<uint32_t> entered(static_cast<size_t>(size()));
  args_.rescue->Read(entered, Own(0, kEntered));
  return entered;
}

}  // namespace mt::comm
