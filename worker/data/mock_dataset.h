// Random tokens without files, for benchmarks and tests: token = floor(u^4 V) with u uniform in [0,
// 1) from Philox, keyed by seed and split and counted by (position, sample). The fourth power makes
// low ids frequent, as in text. A token is a function of seed, split, sample and position alone.
#pragma once

#include "worker/data/dataset.h"
#include "worker/data/split.h"

namespace mt::data {

// Immutable and thread-safe. Read cannot fail.
class MockDataset final : public Dataset {
 public:
  struct Args {
    int64_t num_samples = 0;
    int64_t seq_length = 0;
    int64_t vocab_size = 0;
    uint32_t seed = 0;
    SplitName split_name = SplitName::kTrain;  // each split has its own random stream
  };
  explicit MockDataset(const Args& args);

  int64_t num_samples() const override { return args_.num_samples; }
  int64_t seq_length() const override { return args_.seq_length; }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override;
  const IndexRecord& record() const override { return record_; }

 private:
  const Args args_;
  uint64_t key_ = 0;
  IndexRecord record_;
};

}  // namespace mt::data
