// GPT samples over one split of an indexed data set, as Megatron's GPTDataset: sequences in
// shuffled order are concatenated and divided every S tokens. Consecutive samples share one token,
// the last label of one and the first input of the next.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/data/dataset.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/sample_index.h"

namespace mt::data {

// Immutable after Create; thread-safe.
class GptDataset final : public Dataset {
 public:
  struct Args {
    std::shared_ptr<const IndexedDataset> data{};  // shared by all splits of a data set
    IndexRequest request{};
    SplitName split_name = SplitName::kTrain;
    std::string split_text{};  // SplitText, for the record; empty if the split has its own files
    int64_t vocab_size = 0;    // unpadded; Read refuses ids at or above it
    DataCache cache{};         // without a folder the index stays in memory
    // Labels behind an input of this id have weight 0; empty: none.
    std::optional<int32_t> no_loss_behind{};
    std::optional<int32_t> positions_restart_behind{};  // Dataset::PositionsRestartBehind
  };
  // Loads or builds the sample index; blocks meanwhile. Errors are those of PlanIndex, with the
  // split and the data set named.
  static StatusOr<std::unique_ptr<GptDataset>> Create(Args args);

  int64_t num_samples() const override { return index_->num_samples(); }
  int64_t seq_length() const override { return args_.request.seq_length; }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override;
  std::optional<int32_t> PositionsRestartBehind(int64_t /*sample*/) const override {
    return args_.positions_restart_behind;
  }
  const IndexRecord& record() const override { return record_; }
  const SampleIndex& index() const { return *index_; }

 private:
  GptDataset(Args args, std::unique_ptr<SampleIndex> index);
  // kDataLoss where a read has met bytes that are gone, of data or index.
  Status Intact(int64_t sample) const;
  Status Changed(int64_t sample) const;

  const Args args_;
  const std::unique_ptr<SampleIndex> index_;
  IndexRecord record_;
};

}  // namespace mt::data
