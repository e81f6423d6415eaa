// An epoch of a job, one placement of it, as one number: the term of the coordinator that gave it,
// then a count within the term. Epochs of a later term are greater than all of earlier ones, so
// that two coordinators that know different pasts never give the same one
// (docs/design/control-plane.md#terms). Numbers given before there were terms are of term 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace mt::control {

// Bits of the count: so many placements of one job within a term.
inline constexpr int kEpochCountBits = 20;
inline constexpr int64_t kEpochCounts = int64_t{1} << kEpochCountBits;
// A declared restore raises the term by this, beyond any that the lost coordinator can have reached
// by its starts.
inline constexpr int64_t kRestoreTerms = int64_t{1} << 20;

constexpr int64_t TermOfEpoch(int64_t epoch) { return epoch >> kEpochCountBits; }
constexpr int64_t CountOfEpoch(int64_t epoch) { return epoch & (kEpochCounts - 1); }

// Programs that take an epoch for a double (the history of steps, readers of JSON) know it exactly
// below 2^53: that is so many terms, 8,191 declared restores.
inline constexpr int64_t kMaxTerm = (int64_t{1} << (53 - kEpochCountBits)) - 1;

// The epoch that follows `last` (0: none yet) under this term; 0 where the term has no more. A job
// that was adopted from another cluster may have an epoch of a later term, and goes on in that one.
constexpr int64_t NextEpoch(int64_t last, int64_t term) {
  const int64_t next = std::max(last, term << kEpochCountBits) + 1;
  return TermOfEpoch(next) == std::max(term, TermOfEpoch(last)) ? next : 0;
}

// "5.3"; "3" where the term is 0.
inline std::string EpochText(int64_t epoch) {
  const int64_t term = TermOfEpoch(epoch);
  return term == 0 ? fmt::format("{}", epoch) : fmt::format("{}.{}", term, CountOfEpoch(epoch));
}

}  // namespace mt::control
