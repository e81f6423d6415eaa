// Three ways to a split's data set: a share of one indexed data set, an indexed data set of its
// own, or random tokens.
#include "worker/data/data_source.h"

#include <limits>
#include <utility>

#include "worker/data/gpt_dataset.h"
#include "worker/data/mock_dataset.h"

namespace mt::data {
namespace {

constexpr std::array<SplitName, 3> kSplits = {SplitName::kTrain, SplitName::kValid,
                                              SplitName::kTest};
using Opened = std::array<std::shared_ptr<const Dataset>, 3>;

Status CheckArgs(const DataSourceArgs& args) {
  const int given = (args.mock ? 1 : 0) + (args.path.empty() ? 0 : 1) +
                    (args.train.empty() && args.valid.empty() && args.test.empty() ? 0 : 1);
  if (given != 1) {
    return base::InvalidArgument(
        "data: give exactly one of data.path (with data.split), data.train, data.mock; {} are "
        "given",
        given);
  }
  if (args.seed < 0 || args.seed > int64_t{std::numeric_limits<uint32_t>::max()}) {
    return base::InvalidArgument("data.seed: {} is outside 0 ... 4294967295", args.seed);
  }
  if (args.train_samples <= 0 || args.seq_length <= 0 || args.vocab_size <= 0) {
    return base::InvalidArgument(
        "data: samples {}, seq_length {} and vocabulary {} must be positive", args.train_samples,
        args.seq_length, args.vocab_size);
  }
  return OkStatus();
}

IndexRequest MakeRequest(const DataSourceArgs& args, SequenceRange range, int64_t samples) {
  return {.range = range,
          .seq_length = args.seq_length,
          .samples_asked = samples == kWholeSplit ? 0 : samples,
          .seed = static_cast<uint32_t>(args.seed),
          .keep_partial = samples == kWholeSplit};
}

// One indexed data set, divided by args.split.
StatusOr<Opened> OpenSplitPath(const DataSourceArgs& args, const std::array<int64_t, 3>& samples) {
  ASSIGN_OR_RETURN(const auto shares, ParseSplit(args.split));
  ASSIGN_OR_RETURN(const auto data, IndexedDataset::Open(args.path, args.open));
  const auto ranges = SplitRanges(shares, data->num_sequences());
  Opened opened;
  for (size_t i = 0; i < kSplits.size(); ++i) {
    if (samples[i] == 0) continue;
    if (ranges[i].begin == ranges[i].end) {
      return base::InvalidArgument(
          "data.split: '{}' of the {} sequences of {} leaves none for {}; change the split, use "
          "more data, or switch evaluation off",
          args.split, data->num_sequences(), args.path, Name(kSplits[i]));
    }
    ASSIGN_OR_RETURN(opened[i],
                     GptDataset::Create({.data = data,
                                         .request = MakeRequest(args, ranges[i], samples[i]),
                                         .split_name = kSplits[i],
                                         .split_text = args.split,
                                         .vocab_size = args.vocab_size,
                                         .cache_dir = args.cache_dir}));
  }
  return opened;
}

// One indexed data set per split.
StatusOr<Opened> OpenSeparatePaths(const DataSourceArgs& args,
                                   const std::array<int64_t, 3>& samples) {
  const std::array<const std::string*, 3> paths = {&args.train, &args.valid, &args.test};
  Opened opened;
  for (size_t i = 0; i < kSplits.size(); ++i) {
    if (samples[i] == 0) continue;
    if (paths[i]->empty()) {
      return base::InvalidArgument(
          "data.{}: missing, but {} samples are asked for; give a prefix, "
          "or switch evaluation off",
          Name(kSplits[i]), Name(kSplits[i]));
    }
    ASSIGN_OR_RETURN(const auto data, IndexedDataset::Open(*paths[i], args.open));
    ASSIGN_OR_RETURN(
        opened[i],
        GptDataset::Create({.data = data,
                            .request = MakeRequest(args, {0, data->num_sequences()}, samples[i]),
                            .split_name = kSplits[i],
                            .split_text = "",
                            .vocab_size = args.vocab_size,
                            .cache_dir = args.cache_dir}));
  }
  return opened;
}

Opened OpenMock(const DataSourceArgs& args, const std::array<int64_t, 3>& samples) {
  Opened opened;
  for (size_t i = 0; i < kSplits.size(); ++i) {
    if (samples[i] == 0) continue;
    opened[i] = std::make_shared<MockDataset>(MockDataset::Args{
        .num_samples = samples[i] == kWholeSplit ? kMockWholeSplitSamples : samples[i],
        .seq_length = args.seq_length,
        .vocab_size = args.vocab_size,
        .seed = static_cast<uint32_t>(args.seed),
        .split_name = kSplits[i]});
  }
  return opened;
}

}  // namespace

std::vector<IndexRecord> DataSource::Records() const {
  std::vector<IndexRecord> records;
  for (const Dataset* dataset : {train.get(), valid.get(), test.get()}) {
    if (dataset != nullptr) records.push_back(dataset->record());
  }
  return records;
}

StatusOr<DataSource> OpenDataSource(const DataSourceArgs& args) {
  RETURN_IF_ERROR(CheckArgs(args));
  const std::array<int64_t, 3> samples = {args.train_samples, args.valid_samples,
                                          args.test_samples};
  Opened opened;
  if (args.mock) {
    opened = OpenMock(args, samples);
  } else if (!args.path.empty()) {
    ASSIGN_OR_RETURN(opened, OpenSplitPath(args, samples));
  } else {
    ASSIGN_OR_RETURN(opened, OpenSeparatePaths(args, samples));
  }
  return DataSource{
      .train = std::move(opened[0]), .valid = std::move(opened[1]), .test = std::move(opened[2])};
}

int64_t ValidSamplesAsked(int64_t train_iters, int64_t eval_interval, int64_t eval_iters,
                          int64_t global_batch_size) {
  return eval_interval > 0 ? (train_iters / eval_interval + 1) * eval_iters * global_batch_size : 0;
}

}  // namespace mt::data
