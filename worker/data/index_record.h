// What a checkpoint's manifest records of a split's sample order, so that a resumed run can prove
// that it continues in the same order. Plain values; the manifest stores the fields under their
// names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

struct IndexRecord {
  std::string split_name{};   // "train", "valid", "test"
  std::string source{};       // prefix, or "mock"; not compared, since files may move
  int64_t samples_asked = 0;  // 0: one epoch
  int64_t epochs = 0;         // that the samples need
  bool separate_last_epoch = false;
  int64_t seed = 0;
  int64_t seq_length = 0;
  std::string split{};  // SplitText, "969,30,1"; empty if the split has its own files
  int64_t samples_built = 0;
  std::string idx_digest{};  // XXH3-128 of the .idx, or of the mock generator's constants
  // Of a sample of the .bin (IndexedDataset::bin_digest); empty: not known.
  std::string bin_digest{};
  // Of a blend: the weights as given, "0.7,0.3" ("": none were), and each data set's own record.
  std::string weights{};
  std::vector<IndexRecord> members{};
  friend bool operator==(const IndexRecord&, const IndexRecord&) = default;
};

// What a job goes on with though a checkpoint has it otherwise; each is a warning then.
struct AllowedChanges {
  // data.allow_changed: other files of the same data sets, so their digests and what follows from
  // their lengths.
  bool files = false;
  // data.allow_new_blend: other data sets or weights, where one of the two is a blend, and what
  // follows from them.
  bool blend = false;
};

// OK if `current` has the saved sample order, or what is other is allowed. Otherwise
// kFailedPrecondition, with every difference, both values and what to do.
Status CheckSameOrder(const IndexRecord& saved, const IndexRecord& current,
                      const AllowedChanges& allowed = {});

}  // namespace mt::data
