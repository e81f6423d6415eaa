// Collectives by rounds over slots. Sums begin with the last rank, an order unlike that of
// worker/comm's other groups, so that a test which takes their bits for NCCL's fails; and 16-bit
// sums are rounded at every step, as on a ring.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/worker/comm/nccl_stand_in/communicator.h"

namespace mt::comm::stand_in {
namespace {

const std::byte* At(const void* data, size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
std::byte* At(void* data, size_t bytes) { return static_cast<std::byte*>(data) + bytes; }

struct Bf16 {
  uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static Bf16 Of(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return {static_cast<uint16_t>((wide >> 16) | 0x40U)};
    return {static_cast<uint16_t>((wide + 0x7FFFU + ((wide >> 16) & 1U)) >> 16)};
  }
};

// NCCL's maximum of floats is fmax, which takes the other operand for a NaN.
float Combine(float a, float b, bool sum) { return sum ? a + b : std::fmax(a, b); }
double Combine(double a, double b, bool sum) { return sum ? a + b : std::fmax(a, b); }
_Float16 Combine(_Float16 a, _Float16 b, bool sum) {
  return static_cast<_Float16>(Combine(static_cast<float>(a), static_cast<float>(b), sum));
}
Bf16 Combine(Bf16 a, Bf16 b, bool sum) {
  return Bf16::Of(Combine(static_cast<float>(a), static_cast<float>(b), sum));
}
template <class T>
T Combine(T a, T b, bool sum) {
  using Unsigned = std::make_unsigned_t<T>;
  if (!sum) return std::max(a, b);
  return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
}

template <class T>
void Add(const std::byte* from, size_t bytes, bool sum, std::byte* into) {
  for (size_t i = 0; i < bytes; i += sizeof(T)) {
    T left, right;
    std::memcpy(&left, into + i, sizeof(T));
    std::memcpy(&right, from + i, sizeof(T));
    left = Combine(left, right, sum);
    std::memcpy(into + i, &left, sizeof(T));
  }
}

void AddAs(NcclType type, const std::byte* from, size_t bytes, bool sum, std::byte* into) {
  switch (type) {
    case NcclType::kI8:
      return Add<int8_t>(from, bytes, sum, into);
    case NcclType::kU8:
      return Add<uint8_t>(from, bytes, sum, into);
    case NcclType::kI32:
      return Add<int32_t>(from, bytes, sum, into);
    case NcclType::kU32:
      return Add<uint32_t>(from, bytes, sum, into);
    case NcclType::kI64:
      return Add<int64_t>(from, bytes, sum, into);
    case NcclType::kU64:
      return Add<uint64_t>(from, bytes, sum, into);
    case NcclType::kF16:
      return Add<_Float16>(from, bytes, sum, into);
    case NcclType::kF32:
      return Add<float>(from, bytes, sum, into);
    case NcclType::kF64:
      return Add<double>(from, bytes, sum, into);
    case NcclType::kBf16:
      return Add<Bf16>(from, bytes, sum, into);
  }
}

}  // namespace

size_t SizeOf(NcclType type) {
  switch (type) {
    case NcclType::kI8:
    case NcclType::kU8:
      return 1;
    case NcclType::kF16:
    case NcclType::kBf16:
      return 2;
    case NcclType::kI32:
    case NcclType::kU32:
    case NcclType::kF32:
      return 4;
    case NcclType::kI64:
    case NcclType::kU64:
    case NcclType::kF64:
      return 8;
  }
  return 0;
}

bool Communicator::WaitForAll(std::atomic<uint64_t> Seat::*counter, uint64_t value) {
  for (size_t rank = 0; rank < static_cast<size_t>(num_ranks_); ++rank) {
    if (!WaitUntil([&] { return room_->seats[rank].*counter >= value; })) return false;
  }
  return true;
}

bool Communicator::Meet(const Header& header, const void* data, size_t bytes,
                        const std::function<void()>& read) {
  Seat& own = room_->seats[static_cast<size_t>(rank_)];
  if (!WaitForAll(&Seat::read, num_rounds_)) return false;
  own.header = header;
  if (bytes > 0) std::memcpy(own.slot.data(), data, bytes);
  own.written = ++num_rounds_;
  if (!WaitForAll(&Seat::written, num_rounds_)) return false;
  for (size_t rank = 0; rank < static_cast<size_t>(num_ranks_); ++rank) {
    if (!(room_->seats[rank].header == header)) return Hang();
  }
  read();
  own.read = num_rounds_;
  return true;
}

void Communicator::Reduce(const Header& header, size_t offset, size_t bytes, void* out) {
  const auto last = static_cast<size_t>(num_ranks_ - 1);
  std::memcpy(out, room_->seats[last].slot.data() + offset, bytes);
  for (size_t rank = last; rank-- > 0;) {
    AddAs(static_cast<NcclType>(header.type), room_->seats[rank].slot.data() + offset, bytes,
          header.reduce == static_cast<uint64_t>(NcclRedOp::kSum), static_cast<std::byte*>(out));
  }
}

bool Communicator::AllReduce(const Collective& call) {
  const size_t all = call.header.count * SizeOf(static_cast<NcclType>(call.header.type));
  for (size_t begin = 0; begin < all; begin += kSlotBytes) {
    const size_t bytes = std::min(kSlotBytes, all - begin);
    if (!Meet(call.header, At(call.in, begin), bytes,
              [&] { Reduce(call.header, 0, bytes, At(call.out, begin)); })) {
      return false;
    }
  }
  return true;
}

bool Communicator::ReduceScatter(const Collective& call) {
  const size_t shard = call.header.count * SizeOf(static_cast<NcclType>(call.header.type));
  const auto num_ranks = static_cast<size_t>(num_ranks_);
  const size_t most = kSlotBytes / kMaxRanks;
  std::vector<std::byte> pieces(most * num_ranks);
  for (size_t begin = 0; begin < shard; begin += most) {
    const size_t bytes = std::min(most, shard - begin);
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      std::memcpy(&pieces[rank * bytes], At(call.in, rank * shard + begin), bytes);
    }
    if (!Meet(call.header, pieces.data(), bytes * num_ranks, [&] {
          Reduce(call.header, static_cast<size_t>(rank_) * bytes, bytes, At(call.out, begin));
        })) {
      return false;
    }
  }
  return true;
}

bool Communicator::AllGather(const Collective& call) {
  const size_t shard = call.header.count * SizeOf(static_cast<NcclType>(call.header.type));
  for (size_t begin = 0; begin < shard; begin += kSlotBytes) {
    const size_t bytes = std::min(kSlotBytes, shard - begin);
    if (!Meet(call.header, At(call.in, begin), bytes, [&] {
          for (size_t rank = 0; rank < static_cast<size_t>(num_ranks_); ++rank) {
            std::memcpy(At(call.out, rank * shard + begin), room_->seats[rank].slot.data(), bytes);
          }
        })) {
      return false;
    }
  }
  return true;
}

bool Communicator::Broadcast(const Collective& call) {
  const size_t all = call.header.count * SizeOf(static_cast<NcclType>(call.header.type));
  const bool is_root = static_cast<uint64_t>(rank_) == call.header.root;
  for (size_t begin = 0; begin < all; begin += kSlotBytes) {
    const size_t bytes = std::min(kSlotBytes, all - begin);
    if (!Meet(call.header, At(call.in, begin), is_root ? bytes : 0, [&] {
          std::memcpy(At(call.out, begin), room_->seats[call.header.root].slot.data(), bytes);
        })) {
      return false;
    }
  }
  return true;
}

bool Communicator::RunCollective(const Collective& call) {
  switch (static_cast<Operation>(call.header.operation)) {
    case Operation::kAllReduce:
      return AllReduce(call);
    case Operation::kReduceScatter:
      return ReduceScatter(call);
    case Operation::kAllGather:
      return AllGather(call);
    case Operation::kBroadcast:
      return Broadcast(call);
  }
  return false;
}

}  // namespace mt::comm::stand_in
