// The memory that the ranks of one communicator share: a memory file of the process that made the
// communicator's id, mapped by all. It has no name to be left behind; all counters begin at 0.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/comm/nccl/nccl_api.h"

namespace mt::comm::stand_in {

inline constexpr int kMaxRanks = 8;
inline constexpr size_t kSlotBytes = 32 << 10;
inline constexpr size_t kPieceBytes = 16 << 10;

// What must be equal among the ranks' calls. Nobody reports a difference: such calls hang.
struct Header {
  uint64_t operation = 0;
  uint64_t count = 0;
  uint64_t type = 0;
  uint64_t reduce = 0;
  uint64_t root = 0;
  bool operator==(const Header&) const = default;
};

// A rank's part in collectives. A round: all write their slots, then all read the others'.
struct alignas(64) Seat {
  std::atomic<uint32_t> taken;
  std::atomic<uint64_t> written;  // rounds
  std::atomic<uint64_t> read;     // rounds
  Header header;
  alignas(64) std::array<std::byte, kSlotBytes> slot;
};

// Messages from one rank to another, piece by piece, once the receiver asks for one.
struct alignas(64) Edge {
  std::atomic<uint32_t> has_sender;    // has made its first call
  std::atomic<uint32_t> has_receiver;  // likewise
  std::atomic<uint64_t> wanted;        // messages that were asked for
  std::atomic<uint64_t> written;       // pieces
  std::atomic<uint64_t> read;          // pieces
  uint64_t bytes;                      // of the message that is wanted
  alignas(64) std::array<std::byte, kPieceBytes> piece;
};

struct Room {
  std::atomic<int> num_ranks;
  std::atomic<int> num_joined;
  std::array<Seat, kMaxRanks> seats;
  std::array<std::array<Edge, kMaxRanks>, kMaxRanks> edges;  // [from][to]
};

// Makes the memory of a new communicator; it lives as long as this process or a mapping.
NcclResult MakeRoom(NcclUniqueId* id);

// A mapping of it.
class RoomMapping {
 public:
  RoomMapping() = default;
  ~RoomMapping();
  RoomMapping(const RoomMapping&) = delete;
  RoomMapping& operator=(const RoomMapping&) = delete;
  // False: the process that made the id is gone.
  bool Open(const NcclUniqueId& id);
  Room* operator->() const { return room_; }

 private:
  Room* room_ = nullptr;
};

}  // namespace mt::comm::stand_in
