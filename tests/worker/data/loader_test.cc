// From samples to microbatches: contents, layout, the sampler rule, resume, padding, errors and
// stopping.
#include "worker/data/loader.h"

#include <atomic>
#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "common/base/check.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/gpt_dataset.h"
#include "worker/data/mock_dataset.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<GptDataset> NumberedGpt(const TempDir& dir, const std::vector<int32_t>& lengths,
                                        IndexRequest request, int64_t vocab_size = 1 << 20) {
  request.range = {0, static_cast<int64_t>(lengths.size())};
  auto dataset = GptDataset::Create({.data = NumberedDataset(dir.Path("d"), lengths),
                                     .request = request,
                                     .split_text = "1",
                                     .vocab_size = vocab_size});
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return std::move(dataset).value();
}

// Sample k has tokens 1000 k, 1000 k + 1, ...; reading past `broken` fails; reads are counted.
class CountingDataset final : public Dataset {
 public:
  explicit CountingDataset(int64_t samples, int64_t broken = -1)
      : samples_(samples), broken_(broken) {
    record_.split_name = "train";
    record_.source = "counting";
  }
  int64_t num_samples() const override { return samples_; }
  int64_t seq_length() const override { return 4; }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override {
    reads_.fetch_add(1);
    if (sample == broken_) return base::InvalidArgument("sample {} is broken", sample);
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(1000 * sample));
    std::fill(weights.begin(), weights.end(), 1.0F);
    return OkStatus();
  }
  const IndexRecord& record() const override { return record_; }
  int64_t reads() const { return reads_.load(); }

 private:
  const int64_t samples_;
  const int64_t broken_;
  IndexRecord record_;
  mutable std::atomic<int64_t> reads_{0};
};

std::vector<Microbatch> Drain(const Loader::Args& args) {
  auto loader = Loader::Create(args);
  EXPECT_TRUE(loader.ok()) << loader.status();
  std::vector<Microbatch> batches;
  for (int64_t m = 0; m < (*loader)->num_microbatches(); ++m) {
    auto batch = (*loader)->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    batches.push_back(std::move(batch).value());
  }
  EXPECT_EQ((*loader)->Next().status().code(), absl::StatusCode::kOutOfRange);
  return batches;
}

void ExpectSame(const Microbatch& a, const Microbatch& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.segment_token, b.segment_token);
  EXPECT_EQ(a.segment_start, b.segment_start);
}

TEST(GptDatasetTest, SamplesAreTheShuffledTextCutEverySTokens) {
  const TempDir dir;
  const std::vector<int32_t> lengths = {5, 9, 0, 3, 14, 7};
  const auto dataset = NumberedGpt(dir, lengths, {.seq_length = 8, .samples_asked = 9, .seed = 3});
  std::vector<int32_t> first_id(lengths.size(), 0);
  for (size_t i = 1; i < lengths.size(); ++i) first_id[i] = first_id[i - 1] + lengths[i - 1];
  std::vector<int32_t> joined;
  const SampleIndex& index = dataset->index();
  for (int64_t p = 0; p < index.num_positions(); ++p) {
    const size_t sequence = static_cast<size_t>(index.document(p));
    for (int32_t t = 0; t < lengths[sequence]; ++t) joined.push_back(first_id[sequence] + t);
  }
  for (int64_t i = 0; i < dataset->num_samples(); ++i) {
    std::vector<int32_t> tokens(9);
    std::vector<float> weights(8);
    ASSERT_TRUE(dataset->Read(i, tokens, weights).ok());
    const auto begin = joined.begin() + index.shuffled(i) * 8;
    EXPECT_EQ(tokens, std::vector<int32_t>(begin, begin + 9)) << "sample " << i;
    EXPECT_EQ(weights, std::vector<float>(8, 1.0F));
  }
}

TEST(GptDatasetTest, AKeptPartialSampleCountsEveryLabelOnce) {
  const TempDir dir;
  for (const int64_t s : {1, 4, 5, 19, 36, 37, 38, 100}) {  // 38 tokens: 37 labels
    const auto dataset =
        NumberedGpt(dir, {5, 9, 3, 14, 7, 0}, {.seq_length = s, .seed = 5, .keep_partial = true});
    std::multiset<int32_t> labels;
    for (int64_t i = 0; i < dataset->num_samples(); ++i) {
      std::vector<int32_t> tokens(static_cast<size_t>(s + 1));
      std::vector<float> weights(static_cast<size_t>(s));
      ASSERT_TRUE(dataset->Read(i, tokens, weights).ok());
      for (size_t t = 0; t < weights.size(); ++t) {
        if (weights[t] > 0) labels.insert(tokens[t + 1]);
      }
    }
    EXPECT_EQ(labels.size(), 37U) << "S " << s;
    EXPECT_EQ(std::set<int32_t>(labels.begin(), labels.end()).size(), 37U) << "S " << s;
  }
}

TEST(GptDatasetTest, RecordsItsOrder) {
  const TempDir dir;
  const auto dataset =
      NumberedGpt(dir, {5, 9, 3, 14, 7}, {.seq_length = 8, .samples_asked = 5, .seed = 1234});
  const IndexRecord& record = dataset->record();
  EXPECT_EQ(record.split_name, "train");
  EXPECT_EQ(record.samples_asked, 5);
  EXPECT_EQ(record.epochs, 2);
  EXPECT_TRUE(record.separate_last_epoch);
  EXPECT_EQ(record.seed, 1234);
  EXPECT_EQ(record.seq_length, 8);
  EXPECT_EQ(record.split, "1");
  EXPECT_EQ(record.samples_built, 9);
  EXPECT_EQ(record.idx_digest.size(), 32U);
}

TEST(MockDatasetTest, IsAFunctionOfSeedSampleAndPosition) {
  const MockDataset::Args args = {
      .num_samples = 1000, .seq_length = 511, .vocab_size = 50257, .seed = 7};
  const MockDataset a(args);
  const MockDataset b(args);
  MockDataset::Args other = args;
  other.seed = 8;
  const MockDataset c(other);
  other = args;
  other.split_name = SplitName::kValid;
  const MockDataset d(other);
  std::vector<float> weights(511);
  std::vector<std::vector<int32_t>> drawn;
  for (const Dataset* dataset : std::initializer_list<const Dataset*>{&a, &b, &c, &d}) {
    drawn.emplace_back(512);
    ASSERT_TRUE(dataset->Read(17, drawn.back(), weights).ok());
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], drawn[2]);
  EXPECT_NE(drawn[0], drawn[3]);
  EXPECT_NE(a.record().idx_digest, "");
}

// E[u^4] = 1/5, so the mean id is V/5; P(id < V/16) = P(u < 1/2) = 1/2.
TEST(MockDatasetTest, FollowsTheFourthPower) {
  const MockDataset dataset({.num_samples = 100, .seq_length = 999, .vocab_size = 1600, .seed = 1});
  double sum = 0;
  int64_t low = 0;
  std::vector<int32_t> tokens(1000);
  std::vector<float> weights(999);
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(dataset.Read(i, tokens, weights).ok());
    for (const int32_t token : tokens) {
      ASSERT_GE(token, 0);
      ASSERT_LT(token, 1600);
      sum += token;
      low += token < 100 ? 1 : 0;
    }
  }
  EXPECT_NEAR(sum / 1e5, 319.5, 8);                        // standard error 1.3
  EXPECT_NEAR(static_cast<double>(low) / 1e5, 0.5, 0.01);  // 0.0016
}

TEST(LoaderTest, LaysTokensOutSequenceFirst) {
  const auto batches =
      Drain({.dataset = std::make_shared<CountingDataset>(4), .micro_batch_size = 2, .dp_size = 1});
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[1].s, 4);
  EXPECT_EQ(batches[1].b, 2);
  EXPECT_THAT(batches[1].tokens, ElementsAre(2000, 3000, 2001, 3001, 2002, 3002, 2003, 3003));
  EXPECT_THAT(batches[1].labels, ElementsAre(2001, 3001, 2002, 3002, 2003, 3003, 2004, 3004));
  EXPECT_THAT(batches[1].samples, ElementsAre(2, 3));
  EXPECT_EQ(batches[1].weights, std::vector<float>(8, 1.0F));
  EXPECT_EQ(batches[1].weight_sum, 8.0);
}

TEST(LoaderTest, FollowsTheSamplerRule) {
  const auto dataset = std::make_shared<CountingDataset>(100);
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto batches = Drain({.dataset = dataset,
                                .first_sample = 10,
                                .end_sample = 99,
                                .micro_batch_size = 4,
                                .dp_rank = rank,
                                .dp_size = 3});
    ASSERT_EQ(batches.size(), 7U) << "the incomplete eighth round is dropped";
    for (int64_t m = 0; m < 7; ++m) {
      const int64_t first = 10 + m * 4 * 3 + rank * 4;
      EXPECT_THAT(batches[static_cast<size_t>(m)].samples,
                  ElementsAre(first, first + 1, first + 2, first + 3));
    }
  }
}

TEST(LoaderTest, AnyDataParallelSizeReadsTheSameSamplesPerStep) {
  const auto dataset = std::make_shared<MockDataset>(
      MockDataset::Args{.num_samples = 64, .seq_length = 16, .vocab_size = 100, .seed = 1});
  // Tokens of each sample, by step of 8 samples.
  using Steps = std::map<int64_t, std::map<int64_t, std::vector<int32_t>>>;
  std::vector<Steps> runs;
  for (const int64_t dp : {1, 2, 4}) {
    Steps& steps = runs.emplace_back();
    for (int64_t rank = 0; rank < dp; ++rank) {
      const auto batches = Drain({.dataset = dataset,
                                  .micro_batch_size = 2,
                                  .dp_rank = rank,
                                  .dp_size = dp,
                                  .threads = 2});
      const int64_t per_step = 8 / (2 * dp);
      for (size_t m = 0; m < batches.size(); ++m) {
        for (size_t i = 0; i < 2; ++i) {
          auto& tokens = steps[static_cast<int64_t>(m) / per_step][batches[m].samples[i]];
          for (size_t t = 0; t < 16; ++t) tokens.push_back(batches[m].tokens[2 * t + i]);
        }
      }
    }
    EXPECT_EQ(steps.size(), 8U);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(LoaderTest, ResumesExactly) {
  const TempDir dir;
  std::vector<int32_t> lengths(50);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int32_t>(1 + i * 7 % 23);
  const std::shared_ptr<const Dataset> dataset =
      NumberedGpt(dir, lengths, {.seq_length = 8, .samples_asked = 96, .seed = 11});
  Loader::Args args = {.dataset = dataset, .micro_batch_size = 3, .dp_rank = 1, .dp_size = 2};
  const auto straight = Drain(args);
  auto first = *Loader::Create(args);
  for (int m = 0; m < 5; ++m) ASSERT_TRUE(first->Next().ok());
  EXPECT_EQ(first->consumed_samples(), 30);
  args.first_sample = first->consumed_samples();
  first.reset();
  args.prefetch = 5;
  args.threads = 3;
  const auto resumed = Drain(args);
  ASSERT_EQ(resumed.size() + 5, straight.size());
  for (size_t m = 0; m < resumed.size(); ++m) ExpectSame(resumed[m], straight[m + 5]);
}

TEST(LoaderTest, SortsTokensIntoStableSegments) {
  Microbatch batch;
  batch.tokens = {7, 2, 7, 0, 2, 7};
  SortTokens(&batch);
  EXPECT_THAT(batch.order, ElementsAre(3, 1, 4, 0, 2, 5));
  EXPECT_THAT(batch.segment_token, ElementsAre(0, 2, 7));
  EXPECT_THAT(batch.segment_start, ElementsAre(0, 1, 3, 6));
}

TEST(LoaderTest, EvaluationPadsTheLastRound) {
  for (const int64_t dp : {1, 2, 4}) {
    std::multiset<int64_t> samples;
    double weight = 0;
    for (int64_t rank = 0; rank < dp; ++rank) {
      const auto batches = Drain({.dataset = std::make_shared<CountingDataset>(13),
                                  .micro_batch_size = 2,
                                  .dp_rank = rank,
                                  .dp_size = dp,
                                  .pad_last = true});
      EXPECT_EQ(static_cast<int64_t>(batches.size()), (13 + 2 * dp - 1) / (2 * dp));
      for (const Microbatch& batch : batches) {
        for (size_t i = 0; i < 2; ++i) {
          if (batch.samples[i] >= 0) {
            samples.insert(batch.samples[i]);
          } else {
            for (size_t t = 0; t < 4; ++t) {
              EXPECT_EQ(batch.weights[2 * t + i], 0.0F);
              EXPECT_EQ(batch.tokens[2 * t + i], 0);
              EXPECT_EQ(batch.labels[2 * t + i], 0);
            }
          }
        }
        weight += batch.weight_sum;
        EXPECT_EQ(batch.order.size(), 8U);
      }
    }
    EXPECT_EQ(samples.size(), 13U);
    EXPECT_EQ(*samples.rbegin(), 12);
    EXPECT_EQ(weight, 13 * 4.0);
  }
}

TEST(LoaderTest, AnErrorComesAtItsMicrobatchAndStays) {
  for (const int threads : {1, 3}) {
    auto loader = *Loader::Create({.dataset = std::make_shared<CountingDataset>(20, 7),
                                   .micro_batch_size = 2,
                                   .prefetch = 4,
                                   .threads = threads});
    for (int m = 0; m < 3; ++m) ASSERT_TRUE(loader->Next().ok()) << m;
    for (int again = 0; again < 2; ++again) {
      const auto batch = loader->Next();
      EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(base::Message(batch.status()), HasSubstr("sample 7 is broken"));
    }
    EXPECT_EQ(loader->consumed_samples(), 6);
  }
}

TEST(LoaderTest, ATokenOutsideTheVocabularySurfaces) {
  const TempDir dir;
  auto loader = *Loader::Create(
      {.dataset = NumberedGpt(dir, {40}, {.seq_length = 8, .samples_asked = 4}, /*vocab_size=*/20),
       .micro_batch_size = 4});
  EXPECT_THAT(base::Message(loader->Next().status()), HasSubstr("outside the vocabulary of 20"));
}

TEST(LoaderTest, ReadsOnlyAsFarAheadAsAskedAndStopsAtOnce) {
  const auto dataset = std::make_shared<CountingDataset>(1000);
  auto loader =
      *Loader::Create({.dataset = dataset, .micro_batch_size = 2, .prefetch = 3, .threads = 2});
  ASSERT_TRUE(loader->Next().ok());
  loader.reset();  // joins, though the threads wait for room
  EXPECT_LE(dataset->reads(), 2 * (1 + 3));
  for (int i = 0; i < 50; ++i) {  // stop at any moment
    ASSERT_TRUE(Loader::Create({.dataset = dataset, .micro_batch_size = 1, .threads = 3}).ok());
  }
}

TEST(LoaderTest, RefusesSamplesThatDoNotExist) {
  const auto dataset = std::make_shared<CountingDataset>(10);
  const auto create = [&](int64_t first, int64_t end) {
    return Loader::Create({.dataset = dataset,
                           .first_sample = first,
                           .end_sample = end,
                           .micro_batch_size = 1})
        .status();
  };
  EXPECT_TRUE(create(10, 10).ok());
  EXPECT_THAT(base::Message(create(0, 11)), HasSubstr("samples 0 to 11 were asked for, it has 10"));
  EXPECT_FALSE(create(11, -1).ok());
  EXPECT_FALSE(create(-1, 5).ok());
}

// Blocks every read until released.
class StuckDataset final : public Dataset {
 public:
  ~StuckDataset() override = default;
  int64_t num_samples() const override { return 4; }
  int64_t seq_length() const override { return 4; }
  Status Read(int64_t, std::span<int32_t>, std::span<float>) const override {
    const base::MutexLock lock(&mu_);
    while (!released_) cv_.Wait(&mu_);
    return OkStatus();
  }
  const IndexRecord& record() const override { return record_; }
  void Release() {
    const base::MutexLock lock(&mu_);
    released_ = true;
    cv_.NotifyAll();
  }

 private:
  mutable base::Mutex mu_;
  mutable base::CondVar cv_;
  bool released_ GUARDED_BY(mu_) = false;
  IndexRecord record_;
};

TEST(LoaderTest, NextHasADeadline) {
  const auto dataset = std::make_shared<StuckDataset>();
  auto loader = *Loader::Create(
      {.dataset = dataset, .micro_batch_size = 1, .timeout = std::chrono::milliseconds(20)});
  EXPECT_EQ(loader->Next().status().code(), absl::StatusCode::kDeadlineExceeded);
  dataset->Release();
}

}  // namespace
}  // namespace mt::data
