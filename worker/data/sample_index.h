// Which tokens make sample i: Megatron's document, sample and shuffle indices for one split of one
// data set. The plan is arithmetic (pure), the builder fills a byte image of the three arrays
// (FORMAT.md, "index cache"), SampleIndex reads it. Source:
// docs/design/megatron-compat.md#sample-order. The unit that is shuffled and joined is the
// *sequence* of the .idx; "document index" is Megatron's name for their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "common/base/status.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/split.h"

namespace mt::data {

struct IndexRequest {
  SequenceRange range{};      // of the .idx
  int64_t seq_length = 0;     // S
  int64_t samples_asked = 0;  // n; 0: one epoch, whatever it gives
  uint32_t seed = 0;
  // Keep the last, shorter sample of an epoch (evaluation over a whole split); only with
  // samples_asked 0.
  bool keep_partial = false;
};

struct IndexPlan {
  int64_t tokens_per_epoch = 0;
  int64_t epochs = 0;  // E, the smallest with E tokens_per_epoch >= n S + 1
  bool separate_last_epoch =
      false;            // the last epoch is shuffled apart: less than 80 % of it is used
  int64_t samples = 0;  // built; at least n
  int64_t samples_before_last = 0;  // samples of the first E - 1 epochs; 0 unless separate
  friend bool operator==(const IndexPlan&, const IndexPlan&) = default;
};

// kInvalidArgument where the split cannot give one sample, or would need absurdly many epochs.
StatusOr<IndexPlan> PlanIndex(const IndexRequest& request, int64_t tokens_per_epoch);

// Where sample i begins: position in the document index, token offset in that sequence.
struct SampleStart {
  int64_t position = 0;
  int64_t offset = 0;
  friend bool operator==(const SampleStart&, const SampleStart&) = default;
};

// Element widths and byte offsets of the three arrays in the image; arrays start at multiples
// of 64.
struct IndexLayout {
  int64_t num_positions = 0;  // E x sequences; i32 each
  int64_t num_samples = 0;    // rows = samples + 1
  bool wide_starts = false;   // i64 instead of i32: num_positions > INT32_MAX
  bool wide_shuffle = false;  // i64 instead of u32: samples >= 2^32 - 2
  int64_t starts_at = 0;
  int64_t shuffle_at = 0;
  int64_t total_bytes = 0;
};
IndexLayout MakeIndexLayout(const IndexRequest& request, const IndexPlan& plan);

// Receives the image front to back.
class IndexSink {
 public:
  virtual ~IndexSink() = default;
  virtual Status Append(const void* data, size_t bytes) = 0;
};

// Peak memory: 4 bytes per position, or 4 (8) per sample, whichever is more; the sample index is
// streamed.
Status BuildIndex(const IndexedDataset& data, const IndexRequest& request, const IndexPlan& plan,
                  IndexSink* sink);

// The three arrays, owned (heap) or mapped (cache file). Immutable, thread-safe.
class SampleIndex {
 public:
  // `image_at`: where the image starts in `storage`; the caller has checked the size.
  SampleIndex(IndexPlan plan, IndexLayout layout, std::variant<std::string, MappedFile> storage,
              size_t image_at);
  SampleIndex(const SampleIndex&) = delete;
  SampleIndex& operator=(const SampleIndex&) = delete;

  const IndexPlan& plan() const { return plan_; }
  int64_t num_samples() const { return layout_.num_samples; }
  int64_t num_positions() const { return layout_.num_positions; }
  // Sequence at a position of the document index.
  int32_t document(int64_t position) const;
  // Row 0 ... num_samples(): where unshuffled sample `row` begins.
  SampleStart start(int64_t row) const;
  // Row of the i-th sample in training order.
  int64_t shuffled(int64_t sample) const;

 private:
  const IndexPlan plan_;
  const IndexLayout layout_;
  const std::variant<std::string, MappedFile> storage_;
  const std::byte* image_ = nullptr;
};

// Builds in memory.
StatusOr<std::unique_ptr<SampleIndex>> BuildIndexInMemory(const IndexedDataset& data,
                                                          const IndexRequest& request);

}  // namespace mt::data
