// A digest over the ranks that a node holds, equal on its agent and in the coordinator's ledger as
// long as both mean the same. The digest of a set is the sum of its elements' hashes modulo 2^64:
// the order does not matter, and one rank more, less or ended is one addition or subtraction.
#pragma once

#include <cstdint>
#include <string_view>
#include <xxhash.h>

#include <fmt/format.h>

namespace mt::control {

// What one rank adds: its job's uid, its epoch, its world rank, and whether its process has ended.
inline uint64_t HeldRankHash(std::string_view job_uid, int64_t epoch, int rank, bool ended) {
  const std::string text = fmt::format("{}/{}/{}/{}", job_uid, epoch, rank, ended ? 1 : 0);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace mt::control
