// XXH3 is the round function: the same on all hosts and in all versions.
#include "worker/data/prepare/document_order.h"

#include <array>
#include <cstring>
#include <numeric>

#include "common/base/ids.h"
#include "worker/data/shuffle.h"

namespace mt::data {
namespace {

constexpr uint64_t kRounds = 4;

uint64_t Round(uint64_t half, uint64_t round, uint32_t seed) {
  std::array<char, sizeof(half)> bytes{};
  std::memcpy(bytes.data(), &half, sizeof(half));
  return base::Hash64({bytes.data(), bytes.size()}, (uint64_t{seed} << 8) | round);
}

}  // namespace

DocumentOrder::DocumentOrder(int64_t documents, uint32_t seed, int64_t most_listed)
    : documents_(documents), seed_(seed) {
  while ((int64_t{1} << (2 * half_bits_)) < documents) ++half_bits_;
  if (documents > most_listed) return;
  list_.resize(static_cast<size_t>(documents));
  std::iota(list_.begin(), list_.end(), uint32_t{0});
  ShuffleStream(seed).Shuffle(list_);
}

int64_t DocumentOrder::At(int64_t place) const {
  if (!list_.empty()) return list_[static_cast<size_t>(place)];
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(place);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (Round(right, round, seed_) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= static_cast<uint64_t>(documents_));
  return static_cast<int64_t>(value);
}

}  // namespace mt::data
