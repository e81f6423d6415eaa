// A blend of three data sets that is stopped and gone on with twice, as a run does: opened anew
// from its files and the number of consumed samples. Its ids, one by one, are those of the run that
// nothing stopped.
#include <map>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/data_source.h"
#include "worker/data/loader.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;

// Everything of a sample that a model sees.
struct SeenSample {
  std::vector<int32_t> inputs, labels;
  std::vector<float> weights;
  friend bool operator==(const SeenSample&, const SeenSample&) = default;
};
// By sample number.
using SeenSamples = std::map<int64_t, SeenSample>;

struct LoaderShape {
  int64_t micro_batch = 2;
  int64_t replicas = 1;
  int prefetch = 2;
  int threads = 1;
};

class BlendLoaderTest : public ::testing::Test {
 protected:
  // Every token of the three sets has an id of its own.
  void SetUp() override {
    int32_t next = 0;
    for (const auto& [name, sequences] : {std::pair("news", 40), {"books", 25}, {"code", 12}}) {
      std::vector<int32_t> lengths(static_cast<size_t>(sequences));
      for (int i = 0; i < sequences; ++i)
        lengths[static_cast<size_t>(i)] = 1 + (i * 7 + sequences) % 23;
      WriteDataset(dir_.Path(name), lengths, TokenType::kI32,
                   [&](int64_t, int64_t) { return next++; });
      ends_.push_back(next);
    }
    // More samples than each of the sets has: every one of them comes several times.
    args_ = {
        .path = {{dir_.Path("news"), 0.5}, {dir_.Path("books"), 0.3}, {dir_.Path("code"), 0.2}},
        .split = "1",
        .seq_length = 8,
        .vocab_size = next,
        .seed = 1234,
        .train_samples = kSamples};
  }

  // What the steps from `first` up to `end` read, on all replicas, each of which opens the data.
  SeenSamples Read(int64_t first, int64_t end, const LoaderShape& shape) {
    SeenSamples seen;
    for (int64_t replica = 0; replica < shape.replicas; ++replica) {
      const auto source = OpenDataSource(args_);
      EXPECT_TRUE(source.ok()) << source.status();
      const auto loader = *Loader::Create({.dataset = source->train,
                                           .first_sample = first,
                                           .end_sample = kSamples,
                                           .micro_batch_size = shape.micro_batch,
                                           .dp_rank = replica,
                                           .dp_size = shape.replicas,
                                           .prefetch = shape.prefetch,
                                           .threads = shape.threads});
      while (loader->consumed_samples() < end) {
        const auto batch = loader->Next();
        EXPECT_TRUE(batch.ok()) << batch.status();
        if (!batch.ok()) return seen;
        Add(*batch, &seen);
      }
      EXPECT_EQ(loader->consumed_samples(), end);
    }
    return seen;
  }

  // The set that the sample's tokens come from: all of one.
  size_t MemberOf(const SeenSample& sample) const {
    const auto of = [&](int32_t id) {
      size_t member = 0;
      while (id >= ends_[member]) ++member;
      return member;
    };
    for (const int32_t id : sample.inputs) EXPECT_EQ(of(id), of(sample.inputs[0]));
    return of(sample.inputs[0]);
  }

  static constexpr int64_t kSamples = 480;
  TempDir dir_;
  DataSourceArgs args_;
  std::vector<int32_t> ends_;  // behind the last id of each set

 private:
  static void Add(const Microbatch& batch, SeenSamples* seen) {
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      SeenSample sample;
      for (size_t t = 0; t < static_cast<size_t>(batch.s); ++t) {
        const size_t at = t * batch.samples.size() + i;
        sample.inputs.push_back(batch.tokens[at]);
        sample.labels.push_back(batch.labels[at]);
        sample.weights.push_back(batch.weights[at]);
      }
      const bool is_new = seen->emplace(batch.samples[i], std::move(sample)).second;
      EXPECT_TRUE(is_new) << "sample " << batch.samples[i] << " twice";
    }
  }
};

TEST_F(BlendLoaderTest, StoppedTwiceItsIdsAreThoseOfTheUninterruptedRun) {
  const SeenSamples whole = Read(0, kSamples, {.micro_batch = 2, .replicas = 2});
  ASSERT_EQ(whole.size(), static_cast<size_t>(kSamples));
  std::vector<int64_t> by_member(3, 0);
  for (const auto& [number, sample] : whole) ++by_member[MemberOf(sample)];
  EXPECT_THAT(by_member, ElementsAre(240, 144, 96));

  // In the memory of each rank, then in a cache that the first part has made; stopped in the middle
  // of an epoch; on as many ranks or on others.
  const std::vector<std::vector<LoaderShape>> runs = {
      {{2, 2}, {2, 2}, {2, 2}},
      {{2, 2, 5, 3}, {4, 1, 1, 1}, {1, 4, 3, 2}},
  };
  for (const auto& shapes : runs) {
    SeenSamples parts;
    int64_t first = 0;
    for (const auto& [end, shape] :
         {std::pair(int64_t{136}, shapes[0]), {296, shapes[1]}, {kSamples, shapes[2]}}) {
      SeenSamples part = Read(first, end, shape);
      EXPECT_EQ(static_cast<int64_t>(part.size()), end - first);
      parts.merge(part);
      EXPECT_TRUE(part.empty()) << "a sample of the part before";
      first = end;
    }
    EXPECT_TRUE(parts == whole);
    args_.cache = {.folder = dir_.Path("cache"), .owner = "default/blend"};
  }
}

// A run that a checkpoint holds to its order goes on in it alone: the same sets in another order
// are told apart before a sample is read.
TEST_F(BlendLoaderTest, AnotherOrderOfTheSetsIsAnotherBlend) {
  const auto saved = OpenDataSource(args_);
  ASSERT_TRUE(saved.ok()) << saved.status();
  std::swap(args_.path[0], args_.path[1]);
  const auto swapped = OpenDataSource(args_);
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(CheckSameOrder(saved->train->record(), swapped->train->record())));
}

}  // namespace
}  // namespace mt::data
