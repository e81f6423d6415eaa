// What lies where in a group's shared memory. All of it begins as zeros, which is a valid state of
// everything here; pages that nobody touches cost nothing, so the layout is generous.
//
//   page 0       SegmentHeader
//   members      MemberBlock of each member
//   edges        EdgeRing of each (sender, receiver, edge)
//   staging      two slots of each member, for collectives (rounds.h)
//   arenas       1 TiB of addresses for each member, for the messages that it sends (outbox.h)
//
// A field has one writer, the member that it is named after, except `bell`, which all may ring.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "common/base/math.h"
#include "worker/comm/call_header.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

inline constexpr uint64_t kSegmentMagic = 0x6D742D7368612D31;
inline constexpr int64_t kPageBytes = 4096;
// A slot's first part holds what a member contributes to a round, the second what it has reduced.
inline constexpr int64_t kInputBytes = 512 << 10;
inline constexpr int64_t kResultBytes = kInputBytes / 2;
inline constexpr int64_t kSlotBytes = kInputBytes + kResultBytes;
inline constexpr int64_t kArenaBytes = int64_t{1} << 40;
inline constexpr int64_t kCacheLine = 64;

struct SegmentHeader {
  uint64_t magic;
  int64_t num_members;
  std::array<char, 32> nonce;  // tells this segment from all others
};

enum class MemberState : uint32_t { kHere, kLeft, kBroken };

// Counters that others wait for and words that others write have a cache line of their own.
struct MemberBlock {
  alignas(kCacheLine) std::atomic<uint64_t> rounds;  // at how many rounds it has arrived
  alignas(kCacheLine) std::atomic<uint32_t> bell;    // futex; incremented to wake the member
  std::atomic<uint32_t> asleep;                      // 1: it waits, or is about to
  std::atomic<MemberState> state;
  alignas(kCacheLine) std::array<CallHeader, 2> openings;  // of even and odd rounds
};

// A message's place. The receiver finds its bytes in the sender's arena.
struct Letter {
  CallHeader header;
  int64_t offset;
};

// The messages of one edge, of which at most kSendWindow are not yet received.
struct EdgeRing {
  alignas(kCacheLine) std::atomic<uint64_t> sent;                             // by the sender
  alignas(kCacheLine) std::atomic<uint64_t> taken;                            // by the receiver
  alignas(kCacheLine) std::array<Letter, ProcessGroup::kSendWindow> letters;  // by the sender
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share these words");
static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share these words");

// Offsets in bytes, of a group of this many members.
struct SegmentLayout {
  int64_t num_members = 0;

  int64_t Member(int64_t index) const {
    return kPageBytes + index * static_cast<int64_t>(sizeof(MemberBlock));
  }
  int64_t Edge(int64_t from, int64_t to, int64_t edge) const {
    return Edges() + ((from * num_members + to) * ProcessGroup::kMaxEdges + edge) *
                         static_cast<int64_t>(sizeof(EdgeRing));
  }
  int64_t Slot(int64_t member, int64_t parity) const {
    return Staging() + (member * 2 + parity) * kSlotBytes;
  }
  int64_t Arena(int64_t member) const { return Arenas() + member * kArenaBytes; }
  // Everything before this is mapped at once, arenas as they are used.
  int64_t Arenas() const { return Staging() + num_members * 2 * kSlotBytes; }
  int64_t Total() const { return Arena(num_members); }

 private:
  int64_t Edges() const { return base::RoundUp(Member(num_members), kPageBytes); }
  int64_t Staging() const { return base::RoundUp(Edge(num_members, 0, 0), kPageBytes); }
};

}  // namespace mt::comm
