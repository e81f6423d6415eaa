// From the job's `data` section to the data sets of train, valid and test: the one place that knows
// which files a job reads and how many samples of each it asks for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/dataset.h"

namespace mt::data {

// Either `path` with `split`, or `train` (and `valid`, `test`), or `mock`. Paths are absolute
// prefixes.
struct DataSourceArgs {
  std::string path{};
  std::string split = "969,30,1";
  std::string train{};
  std::string valid{};
  std::string test{};
  bool mock = false;
  int64_t seq_length = 0;
  int64_t vocab_size = 0;     // unpadded
  int64_t seed = 0;           // 0 ... 2^32 - 1, numpy's range
  std::string cache_dir{};    // empty: indices stay in memory
  int64_t train_samples = 0;  // n of the training split, > 0
  // n of valid and test; 0: the split is not opened; kWholeSplit: one epoch, the last partial
  // sample kept.
  int64_t valid_samples = 0;
  int64_t test_samples = 0;
};
inline constexpr int64_t kWholeSplit = -1;
// Mock validation "over the whole split" has this many samples.
inline constexpr int64_t kMockWholeSplitSamples = 64;

// A split without n is null.
struct DataSource {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> valid;
  std::shared_ptr<const Dataset> test;
  // The record of every open split, train first.
  std::vector<IndexRecord> Records() const;
};

// kInvalidArgument where the arguments contradict each other, or a split that is asked for is
// empty.
StatusOr<DataSource> OpenDataSource(const DataSourceArgs& args);

// Samples Megatron asks for in validation: (train_iters / eval_interval + 1) x eval_iters x global
// batch.
int64_t ValidSamplesAsked(int64_t train_iters, int64_t eval_interval, int64_t eval_iters,
                          int64_t global_batch_size);

}  // namespace mt::data
