// What a checkpoint's manifest keeps of a split's sample order, so that a resumed run can prove
// that it goes on in the same order. Plain values; the manifest stores the fields under their
// names.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::data {

struct IndexRecord {
  std::string split_name{};   // "train", "valid", "test"
  std::string source{};       // prefix, or "mock"; for messages only, a data set may move
  int64_t samples_asked = 0;  // n; 0: one epoch
  int64_t epochs = 0;         // E
  bool separate_last_epoch = false;
  int64_t seed = 0;
  int64_t seq_length = 0;
  std::string split{};  // "969,30,1"; empty where the split has its own data set
  int64_t samples_built = 0;
  std::string idx_digest{};  // XXH3-128 of the .idx; of the generator's constants for mock data
  friend bool operator==(const IndexRecord&, const IndexRecord&) = default;
};

// OK where training continues in the saved order. Else kFailedPrecondition that lists every
// difference with both values and says what to do.
Status CheckSameOrder(const IndexRecord& saved, const IndexRecord& current);

}  // namespace mt::data
