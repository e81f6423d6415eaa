// Rendezvous, posting and waiting. A wait alternates between Gloo's blocking wait, which the pulse
// interrupts, and a look at deadline, abort flag and peers.
#include "worker/comm/gloo/mesh.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include <gloo/transport/pair.h>

#include "common/base/check.h"

namespace mt::comm {
namespace {

using std::chrono::milliseconds;

// Gloo's own timeout of a wait, at which it closes every connection. The pulse interrupts the wait
// long before, but not in a process that stands still: one that was stopped for longer would find
// its time over as soon as it goes on.
constexpr milliseconds kLongerThanPulse = std::chrono::hours(24 * 365);
// Timeout of the final check whether an operation is complete.
constexpr milliseconds kLastLook{1};
// Deadline for sending goodbyes.
constexpr milliseconds kFarewell{200};
// Time after a lost connection in which other losses are attributed to the same failure.
constexpr milliseconds kAftermath{50};

// The text of Gloo's "[file:line] text".
std::string Reason(const std::exception& error) {
  const std::string what = error.what();
  const size_t end = what.find("] ");
  return what.starts_with('[') && end != std::string::npos ? what.substr(end + 2) : what;
}

milliseconds Until(base::MonotonicTime deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - base::Clock::Real()->Now());
  return std::max(left, milliseconds(1));
}

Topology AllOthers(size_t num_members) {
  return [num_members](int member) {
    std::vector<int> peers(num_members);
    std::iota(peers.begin(), peers.end(), 0);
    peers.erase(peers.begin() + member);
    return peers;
  };
}

}  // namespace

GlooMesh::GlooMesh(GroupSpec spec, std::shared_ptr<gloo::transport::Context> context,
                   std::vector<int> peers)
    : spec_(std::move(spec)),
      peers_(std::move(peers)),
      context_(std::move(context)),
      watches_(spec_.members.size()) {}

StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Connect(
    const std::shared_ptr<gloo::transport::Device>& device, const GroupSpec& spec,
    RendezvousStore* store, base::MonotonicTime deadline, const Topology& topology) {
  const Topology peers_of = topology ? topology : AllOthers(spec.members.size());
  try {
    auto context = device->createContext(spec.my_index, static_cast<int>(spec.members.size()));
    // A pair takes the context's timeout when it is created and waits five times as long to
    // connect.
    context->setTimeout(std::max(Until(deadline) / 5, milliseconds(1)));
    std::unique_ptr<GlooMesh> mesh(new GlooMesh(spec, std::move(context), peers_of(spec.my_index)));
    RETURN_IF_ERROR(mesh->ExchangeAndConnect(store, deadline, peers_of));
    Status met = mesh->PostWatches();
    if (met.ok()) met = mesh->Meet(deadline);
    if (!met.ok()) return base::Annotate(met, fmt::format("group {}: meeting", spec.name));
    return mesh;
  } catch (const std::exception& error) {
    return base::Unavailable("group {}: connecting: {}", spec.name, Reason(error));
  }
}

Status GlooMesh::ExchangeAndConnect(RendezvousStore* store, base::MonotonicTime deadline,
                                    const Topology& topology) {
  // One value per member: the addresses, all of one length, at which it accepts each of its peers.
  std::string value;
  for (const int peer : peers_) {
    const std::vector<char> address = context_->createPair(peer)->address().bytes();
    value.append(address.data(), address.size());
  }
  const size_t length = value.size() / peers_.size();
  RETURN_IF_ERROR(store->Set(fmt::format("comm/{}/{}", spec_.name, spec_.my_index), value));
  for (const int peer : peers_) {
    auto theirs = store->Get(fmt::format("comm/{}/{}", spec_.name, peer), deadline);
    if (!theirs.ok()) {
      return base::Annotate(
          theirs.status(), fmt::format("group {}: waiting for rank {} (world {})", spec_.name, peer,
                                       spec_.members[static_cast<size_t>(peer)]));
    }
    const std::vector<int> peers_of_peer = topology(peer);
    if (theirs->size() != length * peers_of_peer.size()) {
      return base::FailedPrecondition(
          "group {}: rank {} (world {}) knows another number of members or runs another version",
          spec_.name, peer, spec_.members[static_cast<size_t>(peer)]);
    }
    const auto me = std::find(peers_of_peer.begin(), peers_of_peer.end(), spec_.my_index);
    CHECK(me != peers_of_peer.end()) << "ranks " << spec_.my_index << " and " << peer;
    const char* begin = theirs->data() + length * static_cast<size_t>(me - peers_of_peer.begin());
    try {
      context_->getPair(peer)->connect({begin, begin + length});
    } catch (const std::exception& error) {
      return base::Unavailable(
          "group {}: connecting to rank {} (world {}): {}; check that the hosts reach each other "
          "on the chosen interface, and that rank's log",
          spec_.name, peer, spec_.members[static_cast<size_t>(peer)], Reason(error));
    }
  }
  return OkStatus();
}

Status GlooMesh::PostWatches() {
  constexpr Part kOneByte{.offset = 0, .bytes = 1};
  for (const int peer : peers_) {
    watch(peer).canary = Register(&no_byte_, 1);
    watch(peer).goodbye = Register(&no_byte_, 1);
    RETURN_IF_ERROR(PostRecv(*watch(peer).canary, peer, kCanarySlot, kOneByte));
    RETURN_IF_ERROR(PostRecv(*watch(peer).goodbye, peer, kGoodbyeSlot, kOneByte));
  }
  return OkStatus();
}

Status GlooMesh::Meet(base::MonotonicTime deadline) {
  constexpr Part kOneByte{.offset = 0, .bytes = 1};
  const std::byte sent{};
  std::vector<std::byte> received(spec_.members.size());
  std::vector<std::unique_ptr<GlooBuffer>> in(spec_.members.size());
  std::vector<std::unique_ptr<GlooBuffer>> out(spec_.members.size());
  for (const int peer : peers_) {
    const auto i = static_cast<size_t>(peer);
    in[i] = Register(&received[i], 1);
    out[i] = Register(&sent, 1);
    RETURN_IF_ERROR(PostRecv(*in[i], peer, kMeetingSlot, kOneByte));
    RETURN_IF_ERROR(PostSend(*out[i], peer, kMeetingSlot, kOneByte));
  }
  for (const int peer : peers_) {
    RETURN_IF_ERROR(WaitSend(*out[static_cast<size_t>(peer)], peer, deadline));
    RETURN_IF_ERROR(WaitRecv(*in[static_cast<size_t>(peer)], peer, deadline));
  }
  return OkStatus();
}

// A pair's destructor closes the connection gracefully: what was written still arrives.
GlooMesh::~GlooMesh() {
  if (!broken_) SayGoodbye();
  for (const int peer : peers_) context_->getPair(peer).reset();
}

void GlooMesh::SayGoodbye() {
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + kFarewell;
  const std::byte byte{};
  for (const int peer : peers_) {
    if (watch(peer).goodbye == nullptr || Look(peer) != Presence::kThere) continue;
    const std::unique_ptr<GlooBuffer> buffer = Register(&byte, 1);
    Status sent = PostSend(*buffer, peer, kGoodbyeSlot, {.offset = 0, .bytes = 1});
    if (sent.ok()) sent = WaitSend(*buffer, peer, deadline);
    // If it does not arrive, the peer reports this member as lost, and it has already noticed in
    // another way.
    if (!sent.ok()) continue;
  }
}

std::unique_ptr<GlooBuffer> GlooMesh::Register(const void* data, int64_t bytes) {
  // Gloo has one type for both directions; sends only read.
  return context_->createUnboundBuffer(const_cast<void*>(data), static_cast<size_t>(bytes));
}

Status GlooMesh::PostSend(GlooBuffer& buffer, int peer, uint64_t slot, Part part) {
  try {
    buffer.send(peer, slot, static_cast<size_t>(part.offset), static_cast<size_t>(part.bytes));
    return OkStatus();
  } catch (const std::exception& error) {
    return PeerLost(peer, Reason(error));
  }
}

Status GlooMesh::PostRecv(GlooBuffer& buffer, int peer, uint64_t slot, Part part) {
  try {
    buffer.recv(peer, slot, static_cast<size_t>(part.offset), static_cast<size_t>(part.bytes));
    return OkStatus();
  } catch (const std::exception& error) {
    return PeerLost(peer, Reason(error));
  }
}

GlooMesh::Presence GlooMesh::Look(int peer) {
  Watch& watch = this->watch(peer);
  if (watch.canary == nullptr || watch.presence != Presence::kThere) return watch.presence;
  try {
    // The wait has been interrupted in advance, so it returns at once, or throws if the connection
    // is lost.
    watch.canary->abortWaitRecv();
    watch.canary->waitRecv(kLongerThanPulse);
    return Presence::kThere;
  } catch (const std::exception& error) {
    watch.reason = Reason(error);
  }
  try {
    // After the loss the goodbye has either arrived or failed, so this does not block.
    watch.goodbye->waitRecv(kLongerThanPulse);
    watch.presence = Presence::kLeft;
    watch.reason = "it has left the group";
  } catch (const std::exception&) {
    watch.presence = Presence::kLost;
  }
  return watch.presence;
}

int GlooMesh::FindLost() {
  for (const int peer : peers_) {
    if (Look(peer) == Presence::kLost) return peer;
  }
  return -1;
}

Status GlooMesh::PeerLost(int peer, const std::string& reason) {
  if (broken_) return base::Error(absl::StatusCode::kAborted, "aborted");
  // A member that breaks because another died goes within moments of it: name both.
  if (spec_.members.size() > 2) std::this_thread::sleep_for(kAftermath);
  std::string others;
  for (const int other : peers_) {
    if (other == peer || Look(other) != Presence::kLost) continue;
    others += (others.empty() ? "; also gone: " : ", ") + DescribePeer(other);
  }
  return base::Unavailable("lost {}: {}; its log has the cause{}", DescribePeer(peer), reason,
                           others);
}

bool GlooMesh::Waiting::For(milliseconds timeout) const {
  return direction == Direction::kSend ? buffer->waitSend(timeout) : buffer->waitRecv(timeout);
}

Status GlooMesh::LastLook(const Waiting& waiting, const std::string& reason) {
  // Determine the error first: if the final check times out, Gloo closes the other connections too.
  Status gone = PeerLost(waiting.peer, reason);
  try {
    // What the peer sent before it went has arrived by now. The first check may meet a late
    // interruption; a check of an incomplete operation times out, which throws.
    if (waiting.For(kLastLook) || waiting.For(kLastLook)) return OkStatus();
  } catch (const std::exception&) {
    return gone;
  }
  return gone;
}

Status GlooMesh::Wait(const Waiting& waiting, base::MonotonicTime deadline) {
  for (;;) {
    if (broken_) return base::Error(absl::StatusCode::kAborted, "aborted");
    if (base::Clock::Real()->Now() >= deadline) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "{} did not do its part within the deadline; see its log",
                         DescribePeer(waiting.peer));
    }
    std::string failure;
    bool done = false;
    pulse_.Watch(waiting.buffer, waiting.direction);
    try {
      // Break() sets the flag before it interrupts, so one of the two is noticed.
      done = !broken_ && waiting.For(kLongerThanPulse);
    } catch (const std::exception& error) {
      failure = Reason(error);
    }
    pulse_.Unwatch();
    if (done) return OkStatus();
    if (Look(waiting.peer) != Presence::kThere) failure = watch(waiting.peer).reason;
    if (!failure.empty()) return LastLook(waiting, failure);
    const int lost = FindLost();
    if (lost >= 0) return PeerLost(lost, watch(lost).reason);
  }
}

Status GlooMesh::WaitSend(GlooBuffer& buffer, int peer, base::MonotonicTime deadline) {
  return Wait({.buffer = &buffer, .direction = Direction::kSend, .peer = peer}, deadline);
}

Status GlooMesh::WaitRecv(GlooBuffer& buffer, int peer, base::MonotonicTime deadline) {
  return Wait({.buffer = &buffer, .direction = Direction::kRecv, .peer = peer}, deadline);
}

std::string GlooMesh::DescribePeer(int peer) const {
  return fmt::format("rank {} (world {})", peer, spec_.members[static_cast<size_t>(peer)]);
}

void GlooMesh::Break() {
  broken_ = true;
  pulse_.Interrupt();
  for (const int peer : peers_) {
    try {
      context_->getPair(peer)->close();
    } catch (const std::exception&) {
      // The connection was closed already, which is what this is for.
      continue;
    }
  }
}

}  // namespace mt::comm
