// Ways to a split's data set: a share of an indexed data set, an indexed data set of its own, a
// blend of several of either, or random tokens.
#include "worker/data/data_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "worker/data/blended_dataset.h"
#include "worker/data/data_checks.h"
#include "worker/data/gpt_dataset.h"
#include "worker/data/mock_dataset.h"

namespace mt::data {
namespace {

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

using DatasetPtr = std::shared_ptr<const Dataset>;

// What is opened of one split.
struct Wanted {
  SplitName split = SplitName::kTrain;
  int64_t samples = 0;
};

// The open indexed data sets of a job, each once, however many splits and blends read it.
class Opener {
 public:
  explicit Opener(const DataSourceArgs& args) : args_(args) {}

  // Null where no samples are wanted.
  StatusOr<DatasetPtr> Open(const Wanted& wanted);
  std::vector<FileWatch> Watches() const;
  // Warns where training reads what this split holds out.
  void CompareWithTrain(SplitName held_out) const;

 private:
  const DataPath& PathOf(SplitName split) const {
    if (!args_.path.empty()) return args_.path;
    if (split == SplitName::kTrain) return args_.train;
    return split == SplitName::kValid ? args_.valid : args_.test;
  }
  DataSets OpenOf(SplitName split) const;
  DatasetPtr Mock(const Wanted& wanted) const;
  // What a split has of a data set of `path`; kInvalidArgument where that is nothing.
  StatusOr<SequenceRange> PartOf(const IndexedDataset& data, SplitName split) const;
  // `samples` of one data set, or one epoch of it: whole with its last, shorter sample, or not.
  enum class Epoch { kNo, kFullSamples, kWhole };
  StatusOr<DatasetPtr> Member(const std::string& prefix, SplitName split, int64_t samples,
                              Epoch epoch = Epoch::kNo);
  StatusOr<DatasetPtr> Blend(const DataPath& path, const Wanted& wanted);
  StatusOr<DatasetPtr> WeightedBlend(const DataPath& path, const Wanted& wanted,
                                     std::vector<double> weights);
  StatusOr<DatasetPtr> UnweightedBlend(std::vector<DatasetPtr> members, int64_t samples) const;

  const DataSourceArgs& args_;
  std::map<std::string, std::shared_ptr<const IndexedDataset>> files_;
};

StatusOr<DatasetPtr> Opener::Open(const Wanted& wanted) {
  if (wanted.samples == 0) return DatasetPtr();
  if (args_.mock) return Mock(wanted);
  const DataPath& path = PathOf(wanted.split);
  if (path.empty()) {
    return base::InvalidArgument(
        "data.{}: missing, but {} samples are asked for; give a prefix, or switch evaluation off",
        Name(wanted.split), Name(wanted.split));
  }
  if (path.size() > 1) return Blend(path, wanted);
  const bool whole = wanted.samples == kWholeSplit;
  return Member(path[0].prefix, wanted.split, wanted.samples, whole ? Epoch::kWhole : Epoch::kNo);
}

std::vector<FileWatch> Opener::Watches() const {
  std::vector<FileWatch> all;
  for (const auto& [prefix, data] : files_) {
    for (FileWatch& watch : data->Watches(args_.allow_changed)) all.push_back(std::move(watch));
  }
  return all;
}

DataSets Opener::OpenOf(SplitName split) const {
  DataSets open;
  for (const DataMember& member : PathOf(split)) {
    const auto found = files_.find(member.prefix);
    if (found != files_.end()) open.push_back(found->second);
  }
  return open;
}

void Opener::CompareWithTrain(SplitName held_out) const {
  // What `split` divides has no token twice.
  if (args_.path.empty()) SayShared(OpenOf(SplitName::kTrain), OpenOf(held_out), Name(held_out));
}

DatasetPtr Opener::Mock(const Wanted& wanted) const {
  return std::make_shared<MockDataset>(MockDataset::Args{
      .num_samples = wanted.samples == kWholeSplit ? kMockWholeSplitSamples : wanted.samples,
      .seq_length = args_.seq_length,
      .vocab_size = args_.vocab_size,
      .seed = static_cast<uint32_t>(args_.seed),
      .split_name = wanted.split});
}

StatusOr<SequenceRange> Opener::PartOf(const IndexedDataset& data, SplitName split) const {
  ASSIGN_OR_RETURN(const auto ranges, DivideData(data, args_.split, args_.split_by));
  const SequenceRange range = ranges[static_cast<size_t>(split)];
  if (range.begin < range.end) return range;
  const bool by_tokens = args_.split_by == SplitBy::kTokens;
  return base::InvalidArgument(
      "data.split: '{}' of the {} {} of {} leaves none for {}; change the split, {}use more data, "
      "or switch evaluation off",
      args_.split, by_tokens ? data.num_tokens() : data.num_sequences(),
      by_tokens ? "tokens" : "sequences", data.prefix(), Name(split),
      by_tokens ? "" : "divide by tokens (data.split_by=tokens), ");
}

StatusOr<DatasetPtr> Opener::Member(const std::string& prefix, SplitName split, int64_t samples,
                                    Epoch epoch) {
  std::shared_ptr<const IndexedDataset>& data = files_[prefix];
  if (data == nullptr) {
    ASSIGN_OR_RETURN(data, IndexedDataset::Open(prefix, args_.open, args_.cache));
  }
  SequenceRange range{.begin = 0, .end = data->num_sequences()};
  const bool divided = !args_.path.empty();
  if (divided) {
    ASSIGN_OR_RETURN(range, PartOf(*data, split));
  }
  RETURN_IF_ERROR(CheckSampledIds(*data, range, args_.vocab_size));
  const IndexRequest request{.range = range,
                             .seq_length = args_.seq_length,
                             .samples_asked = epoch == Epoch::kNo ? samples : 0,
                             .seed = static_cast<uint32_t>(args_.seed),
                             .keep_partial = epoch == Epoch::kWhole};
  return GptDataset::Create({.data = data,
                             .request = request,
                             .split_name = split,
                             .split_text = divided ? SplitText(args_.split, args_.split_by) : "",
                             .vocab_size = args_.vocab_size,
                             .cache = args_.cache,
                             .no_loss_behind = args_.no_loss_behind,
                             .positions_restart_behind = args_.positions_restart_behind});
}

StatusOr<DatasetPtr> Opener::Blend(const DataPath& path, const Wanted& wanted) {
  if (static_cast<int64_t>(path.size()) > kMaxBlendMembers) {
    return base::InvalidArgument("a blend of {} data sets; at most {} are supported", path.size(),
                                 kMaxBlendMembers);
  }
  std::vector<double> weights;
  for (const DataMember& member : path) {
    if (member.weight) weights.push_back(*member.weight);
  }
  if (!weights.empty() && weights.size() != path.size()) {
    return base::InvalidArgument(
        "a blend of {} data sets of which {} have a weight; give all or none", path.size(),
        weights.size());
  }
  if (!weights.empty() && wanted.samples != kWholeSplit)
    return WeightedBlend(path, wanted, std::move(weights));
  const bool whole = wanted.samples == kWholeSplit;
  std::vector<DatasetPtr> members;
  for (const DataMember& member : path) {
    ASSIGN_OR_RETURN(members.emplace_back(), Member(member.prefix, wanted.split, 0,
                                                    whole ? Epoch::kWhole : Epoch::kFullSamples));
  }
  if (whole) return std::make_shared<JoinedDataset>(std::move(members));
  return UnweightedBlend(std::move(members), wanted.samples);
}

StatusOr<DatasetPtr> Opener::WeightedBlend(const DataPath& path, const Wanted& wanted,
                                           std::vector<double> weights) {
  const std::vector<double> shares = NormalizeWeights(weights);
  const std::vector<int64_t> asked = AskedOfMembers(shares, wanted.samples);
  BlendDraw draw = BlendDraw::SharedByWeights(args_.cache, shares, wanted.samples);
  const std::vector<int64_t> taken = draw.Taken(wanted.samples);
  std::vector<DatasetPtr> members;
  for (size_t i = 0; i < path.size(); ++i) {
    // Few samples of many members may be more than half a percent above the shares.
    const int64_t samples = std::max({asked[i], taken[i], int64_t{1}});
    ASSIGN_OR_RETURN(members.emplace_back(), Member(path[i].prefix, wanted.split, samples));
  }
  return std::make_shared<BlendedDataset>(std::move(members), std::move(draw), std::move(weights),
                                          wanted.samples);
}

StatusOr<DatasetPtr> Opener::UnweightedBlend(std::vector<DatasetPtr> members,
                                             int64_t samples) const {
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const DatasetPtr& member : members) {
    sizes.push_back(member->num_samples());
    total += sizes.back();
  }
  if (samples > total) {
    return base::InvalidArgument(
        "the {} data sets of the blend have {} {} samples, each once, but {} are asked for: give "
        "weights, which let data sets repeat, or a shorter run",
        members.size(), total, members[0]->record().split_name, samples);
  }
  BlendDraw draw = BlendDraw::SharedByWeights(
      args_.cache, std::vector<double>(sizes.begin(), sizes.end()), samples);
  const std::vector<int64_t> taken = draw.Taken(samples);
  // The proportion's rounding may ask for one more than a data set has, where Megatron fails.
  if (!std::equal(taken.begin(), taken.end(), sizes.begin(), std::less_equal<>()))
    draw = BlendDraw::SharedExhaustive(args_.cache, sizes);
  return std::make_shared<BlendedDataset>(std::move(members), std::move(draw),
                                          std::vector<double>(), samples);
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
  Opener opener(args);
  DataSource source;
  ASSIGN_OR_RETURN(source.train, opener.Open({SplitName::kTrain, args.train_samples}));
  ASSIGN_OR_RETURN(source.valid, opener.Open({SplitName::kValid, args.valid_samples}));
  ASSIGN_OR_RETURN(source.test, opener.Open({SplitName::kTest, args.test_samples}));
  const int64_t whole = args.whole_valid ? kWholeSplit : 0;
  ASSIGN_OR_RETURN(source.whole_valid, opener.Open({SplitName::kValid, whole}));
  if (source.valid != nullptr || source.whole_valid != nullptr)
    opener.CompareWithTrain(SplitName::kValid);
  if (source.test != nullptr) opener.CompareWithTrain(SplitName::kTest);
  source.watches = opener.Watches();
  return source;
}

StatusOr<DataPath> ParseDataPath(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream in{std::string(text)};
  for (std::string word; in >> word;) words.push_back(std::move(word));
  if (words.empty()) return base::InvalidArgument("names no data set");
  const auto weight_of = [](const std::string& word) -> std::optional<double> {
    double value = 0;
    const auto end = std::from_chars(word.data(), word.data() + word.size(), value);
    if (end.ec != std::errc() || end.ptr != word.data() + word.size()) return std::nullopt;
    return value;
  };
  bool pairs = words.size() % 2 == 0;
  for (size_t i = 0; pairs && i < words.size(); i += 2) pairs = weight_of(words[i]).has_value();
  DataPath path;
  for (size_t i = 0; i < words.size(); i += pairs ? 2 : 1) {
    DataMember member{.prefix = words[i + (pairs ? 1 : 0)]};
    if (pairs) {
      member.weight = weight_of(words[i]);
      if (!(*member.weight > 0) || !std::isfinite(*member.weight))
        return base::InvalidArgument("the weight {} of {} is not above 0", words[i], member.prefix);
    }
    path.push_back(std::move(member));
  }
  return path;
}

int64_t ValidSamplesAsked(int64_t train_iters, int64_t eval_interval, int64_t eval_iters,
                          int64_t global_batch_size, bool fixed) {
  if (eval_interval == 0) return 0;
  return (fixed ? 1 : train_iters / eval_interval + 1) * eval_iters * global_batch_size;
}

}  // namespace mt::data
