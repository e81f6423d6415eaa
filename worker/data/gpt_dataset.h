// GPT samples over one split of one indexed data set: sequences in shuffled order, joined end to
// end, cut every S tokens.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/data/dataset.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/sample_index.h"

namespace mt::data {

class GptDataset final : public Dataset {
 public:
  struct Args {
    std::shared_ptr<const IndexedDataset> data{};  // shared by the splits of one data set
    IndexRequest request{};
    SplitName split_name = SplitName::kTrain;
    std::string split_text{};  // for the record; empty where the split has its own data set
    int64_t vocab_size = 0;    // unpadded; ids at or above are refused by Read
    std::string cache_dir{};   // empty: the index stays in memory
  };
  static StatusOr<std::unique_ptr<GptDataset>> Create(Args args);

  int64_t num_samples() const override { return index_->num_samples(); }
  int64_t seq_length() const override { return args_.request.seq_length; }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override;
  const IndexRecord& record() const override { return record_; }
  const SampleIndex& index() const { return *index_; }

 private:
  GptDataset(Args args, std::unique_ptr<SampleIndex> index);

  const Args args_;
  const std::unique_ptr<SampleIndex> index_;
  IndexRecord record_;
};

}  // namespace mt::data
