// Which tokens form sample i: Megatron's document, sample and shuffle indices for one split of a
// data set (docs/design/megatron-compat.md#sample-order; megatron/core/datasets/gpt_dataset.py,
// _build_document_sample_shuffle_indices).
// PlanIndex is pure arithmetic, BuildIndex writes the three arrays as one image (FORMAT.md, "data
// cache"), SampleIndex reads it. The unit that is shuffled and concatenated is the *sequence* of
// the .idx; "document index" is Megatron's name for the order of sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "common/base/status.h"
#include "worker/data/cache_file.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/split.h"

namespace mt::data {

// The parameters of a sample index.
struct IndexRequest {
  SequenceRange range{};      // what the split has of the data set
  int64_t seq_length = 0;     // S
  int64_t samples_asked = 0;  // n; 0: as many as one epoch has
  uint32_t seed = 0;
  // Keep the last, shorter sample of an epoch (evaluation over a whole split). Requires
  // samples_asked 0 (CHECK).
  bool keep_partial = false;
};

// The numbers of epochs and samples that a request leads to.
struct IndexPlan {
  int64_t tokens_per_epoch = 0;
  int64_t epochs = 0;                // E: the smallest with E tokens_per_epoch >= n S + 1
  bool separate_last_epoch = false;  // shuffle the last epoch apart: less than 80 % of it is used
  int64_t samples = 0;               // that are built; >= n
  int64_t samples_before_last = 0;   // samples of the first E - 1 epochs; 0 unless separate
  friend bool operator==(const IndexPlan&, const IndexPlan&) = default;
};

// kInvalidArgument if the split has too few tokens for one sample, the number of samples overflows,
// or the document index would have more than 2^33 entries.
StatusOr<IndexPlan> PlanIndex(const IndexRequest& request, int64_t tokens_per_epoch);

// Start of a sample: a position in the document index and a token offset in what the range has of
// the sequence found there.
struct SampleStart {
  int64_t position = 0;
  int64_t offset = 0;
  friend bool operator==(const SampleStart&, const SampleStart&) = default;
};

// Element widths and byte offsets of the three arrays in the image; each array begins at a multiple
// of 64 bytes.
struct IndexLayout {
  int64_t num_positions = 0;  // document index: E x sequences, i32
  int64_t num_samples = 0;    // sample index: num_samples + 1 rows of 2
  bool wide_starts = false;   // sample index is i64, not i32: num_positions > INT32_MAX
  bool wide_shuffle = false;  // shuffle index is i64, not u32: num_samples >= 2^32 - 2
  int64_t starts_at = 0;
  int64_t shuffle_at = 0;
  int64_t total_bytes = 0;
};
IndexLayout MakeIndexLayout(const IndexRequest& request, const IndexPlan& plan);

// Writes the image of the three arrays to `sink`. Peak memory: 4 bytes per position, or 4 (wide: 8)
// per sample, whichever is more; the sample index is streamed. kInvalidArgument if the split has
// sequences beyond 2^31 - 1.
Status BuildIndex(const IndexedDataset& data, const IndexRequest& request, const IndexPlan& plan,
                  ImageSink* sink);

// The three arrays, in memory or in a mapped cache file; owns their storage. Immutable and
// thread-safe. Arguments are CHECKed.
class SampleIndex {
 public:
  // `image_at`: byte offset of the image in `storage`, whose size the caller has checked.
  SampleIndex(IndexPlan plan, IndexLayout layout, std::variant<std::string, MappedFile> storage,
              size_t image_at);
  SampleIndex(const SampleIndex&) = delete;
  SampleIndex& operator=(const SampleIndex&) = delete;

  const IndexPlan& plan() const { return plan_; }
  int64_t num_samples() const { return layout_.num_samples; }
  int64_t num_positions() const { return layout_.num_positions; }
  // The sequence at a position of the document index.
  int32_t document(int64_t position) const;
  // Start of unshuffled sample `row`, 0 <= row <= num_samples().
  SampleStart start(int64_t row) const;
  // The row of the i-th sample in training order.
  int64_t shuffled(int64_t sample) const;
  // As MappedFile's.
  bool lost() const;

 private:
  const IndexPlan plan_;
  const IndexLayout layout_;
  const std::variant<std::string, MappedFile> storage_;
  const std::byte* image_ = nullptr;
};

// Plans and builds an index in memory. Errors are those of PlanIndex and BuildIndex.
StatusOr<std::unique_ptr<SampleIndex>> BuildIndexInMemory(const IndexedDataset& data,
                                                          const IndexRequest& request);

}  // namespace mt::data
