// Positions that restart at documents: by sample, sorted, and from data sets through the loader.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <gmock/gmock.h>

#include "common/base/check.h"
#include "worker/data/blended_dataset.h"
#include "worker/data/loader.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kEnd = 9;

std::vector<int32_t> PositionsOf(const std::vector<int32_t>& inputs, std::optional<int32_t> end) {
  Microbatch batch = EmptyMicrobatch(std::ssize(inputs), 1, {.positions = true});
  PlacePositions(inputs, end, 0, &batch);
  return batch.positions;
}

TEST(PlacePositionsTest, RestartBehindTheTokenThatEndsADocument) {
  EXPECT_THAT(PositionsOf({5, 6, kEnd, 1, 2, 3}, kEnd), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(PositionsOf({kEnd, kEnd, 4, kEnd, kEnd, 4}, kEnd), ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_THAT(PositionsOf({1, 2, 3, 4}, kEnd), ElementsAre(0, 1, 2, 3)) << "its begin is not seen";
  EXPECT_THAT(PositionsOf({1, 2, kEnd}, kEnd), ElementsAre(0, 1, 2)) << "an end at the end";
  EXPECT_THAT(PositionsOf({1, kEnd, 3}, std::nullopt), ElementsAre(0, 1, 2));
}

TEST(SortPositionsTest, IsAStableSort) {
  Microbatch batch = EmptyMicrobatch(7, 3, {.positions = true});
  for (size_t row = 0; row < batch.positions.size(); ++row)
    batch.positions[row] = static_cast<int32_t>(row * row % 5 == 4 ? 6 : row * row % 5);
  SortPositions(&batch);
  std::vector<int32_t> order(21);
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t row) { return batch.positions[static_cast<size_t>(row)]; };
  std::ranges::stable_sort(order, {}, at);
  EXPECT_EQ(batch.position_order, order);
  EXPECT_THAT(batch.position_value, ElementsAre(0, 1, 6)) << "squares modulo 5";
  EXPECT_THAT(batch.position_start, ElementsAre(0, 5, 13, 21));
  EXPECT_THAT(batch.position_count, ElementsAre(3));
}

// Sample i is i, i + 1, ..., whose documents end with each multiple of `end`.
class Counting final : public Dataset {
 public:
  Counting(int64_t samples, std::optional<int32_t> end) : samples_(samples), end_(end) {}
  int64_t num_samples() const override { return samples_; }
  int64_t seq_length() const override { return 4; }
  Status Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const auto id = static_cast<int32_t>(sample) + static_cast<int32_t>(t);
      tokens[t] = end_ && id % *end_ == 0 ? *end_ : id + 100;
    }
    std::ranges::fill(weights, 1.0F);
    return OkStatus();
  }
  std::optional<int32_t> PositionsRestartBehind(int64_t sample) const override {
    CHECK(sample >= 0 && sample < samples_);
    return end_;
  }
  const IndexRecord& record() const override { return record_; }

 private:
  const int64_t samples_;
  const std::optional<int32_t> end_;
  IndexRecord record_;
};

Microbatch FirstOf(std::shared_ptr<const Dataset> dataset, const MicrobatchParts& parts,
                   int64_t samples = 3) {
  auto loader = Loader::Create({.dataset = std::move(dataset),
                                .micro_batch_size = samples,
                                .pad_last = true,
                                .parts = parts});
  EXPECT_TRUE(loader.ok()) << loader.status();
  auto batch = (*loader)->Next();
  EXPECT_TRUE(batch.ok()) << batch.status();
  return *std::move(batch);
}

TEST(LoaderPositionsTest, EachSampleHasItsOwn) {
  // 3 4 5 ...: of sample 0 the ends are tokens 0 and 3, of sample 1 token 2. Sample 2 is padding.
  const auto dataset = std::make_shared<Counting>(2, 3);
  const MicrobatchParts all{.positions = true, .position_order = true};
  const Microbatch batch = FirstOf(dataset, all);
  EXPECT_THAT(batch.samples, ElementsAre(0, 1, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 3));
  Microbatch sorted = batch;
  SortPositions(&sorted);
  EXPECT_EQ(batch.position_order, sorted.position_order);
  EXPECT_THAT(batch.position_value, ElementsAre(0, 1, 2, 3));
  // A stage that only turns by them reads them alone.
  const Microbatch middle = FirstOf(dataset, {.inputs = false, .labels = false, .positions = true});
  const Microbatch empty = EmptyMicrobatch(4, 3);
  EXPECT_EQ(middle.positions, batch.positions);
  EXPECT_THAT(middle.position_order, IsEmpty());
  EXPECT_EQ(middle.tokens, empty.tokens);
  EXPECT_EQ(middle.labels, empty.labels);
  EXPECT_EQ(middle.samples, batch.samples);
  // Where nobody asks there are none.
  const Microbatch plain = FirstOf(dataset, {});
  EXPECT_THAT(plain.positions, IsEmpty());
  EXPECT_THAT(plain.position_order, IsEmpty());
  EXPECT_EQ(plain.tokens, batch.tokens);
}

TEST(LoaderPositionsTest, BlendsAskTheirMembers) {
  const std::vector<std::shared_ptr<const Dataset>> members = {
      std::make_shared<Counting>(1, 2), std::make_shared<Counting>(1, std::nullopt),
      std::make_shared<Counting>(2, 3)};
  const JoinedDataset joined(members);
  EXPECT_EQ(joined.PositionsRestartBehind(0), 2);
  EXPECT_EQ(joined.PositionsRestartBehind(1), std::nullopt);
  EXPECT_EQ(joined.PositionsRestartBehind(2), 3);
  EXPECT_EQ(joined.PositionsRestartBehind(3), 3);
  const Microbatch batch =
      FirstOf(std::make_shared<JoinedDataset>(members), {.positions = true}, 4);
  EXPECT_THAT(batch.positions, ElementsAre(0, 0, 0, 0, 0, 1, 0, 1, 1, 2, 1, 2, 0, 3, 2, 0));
}

}  // namespace
}  // namespace mt::data
