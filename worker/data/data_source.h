// Opens the data sets of the train, valid and test splits from a job's `data` section. The only
// place that knows which files a job reads and how many samples of each split it asks for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/data/cache_file.h"
#include "worker/data/dataset.h"
#include "worker/data/file_watch.h"
#include "worker/data/split.h"

namespace mt::data {

// One data set of a list: an absolute path without ".bin" or ".idx".
struct DataMember {
  std::string prefix{};
  std::optional<double> weight{};  // above 0; all members of a blend have one, or none has
};
// A data set, or a blend of several: by weight; without weights in proportion of their sizes, each
// sample once.
using DataPath = std::vector<DataMember>;

// Reads a list of Megatron's form, "weight prefix weight prefix ..." or "prefix prefix ...",
// divided by white space. kInvalidArgument if it is empty or has a weight that is not above 0.
StatusOr<DataPath> ParseDataPath(std::string_view text);

// Exactly one source: `path` with `split` and `split_by`, or `train` (with `valid` and `test`), or
// `mock`.
struct DataSourceArgs {
  DataPath path{};
  std::string split = "969,30,1";  // of each member of `path`
  SplitBy split_by = SplitBy::kDocuments;
  DataPath train{};
  DataPath valid{};
  DataPath test{};
  base::FileOpener open{};  // of the files of these paths
  bool mock = false;
  int64_t seq_length = 0;
  int64_t vocab_size = 0;     // unpadded
  int64_t seed = 0;           // 0 ... 2^32 - 1, as numpy's seeds
  DataCache cache{};          // without a folder nothing is shared with other processes
  int64_t train_samples = 0;  // samples asked of the training split, > 0
  // Samples asked of valid and test. 0: the split is not opened; kWholeSplit: one epoch, its last
  // partial sample included.
  int64_t valid_samples = 0;
  int64_t test_samples = 0;
  bool whole_valid = false;  // the whole validation split besides
  // Labels behind an input of this id have weight 0; empty: none (data.eod_mask_loss).
  std::optional<int32_t> no_loss_behind{};
  // Positions behind an input of this id begin again at 0; empty: they count through each sample
  // (data.reset_positions).
  std::optional<int32_t> positions_restart_behind{};
  bool allow_changed = false;  // of the tokens, under the run (data.allow_changed)
};
// A number of samples that means one whole epoch of the split.
inline constexpr int64_t kWholeSplit = -1;
// Number of samples of a whole mock split, which has no natural length.
inline constexpr int64_t kMockWholeSplitSamples = 64;

// The opened data sets; a split of which no samples are asked is null.
struct DataSource {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> valid;
  std::shared_ptr<const Dataset> test;
  std::shared_ptr<const Dataset> whole_valid;
  // Of every file that was opened.
  std::vector<FileWatch> watches;
  // The IndexRecord of every open split, train first, but for whole_valid.
  std::vector<IndexRecord> Records() const;
};

// Opens every split of which samples are asked. Blocks: checks the files and loads or builds the
// sample indices, each file once. Warns where training and held-out data are one data set.
// kInvalidArgument if the arguments contradict each other, a split that is asked for is empty, a
// sample of its ids is outside the vocabulary, or a blend without weights has too few samples; else
// the errors of IndexedDataset::Open and PlanIndex.
StatusOr<DataSource> OpenDataSource(const DataSourceArgs& args);

// The number of validation samples Megatron asks for: (train_iters / eval_interval + 1) x
// eval_iters x global_batch_size, or 0 without an interval; those of one evaluation where each
// reads the same (`fixed`). It is part of the plan, so it decides the order of the validation
// samples: with `fixed` that does not depend on the length of the run.
int64_t ValidSamplesAsked(int64_t train_iters, int64_t eval_interval, int64_t eval_iters,
                          int64_t global_batch_size, bool fixed);

}  // namespace mt::data
