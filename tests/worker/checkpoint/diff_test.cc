// Two checkpoints are compared whatever their layouts; what differs is named with its place.
#include "worker/checkpoint/inspect/diff.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"

namespace mt::checkpoint {
namespace {

constexpr Cut kCuts[] = {Cut::kWhole, Cut::kRows, Cut::kColumns, Cut::kBuckets};

class DiffTest : public testing::Test {
 protected:
  // The states saved in two directories.
  StatusOr<DiffReport> Compare(const SavedState& a, Cut cut_a, const SavedState& b, Cut cut_b) {
    ++count_;
    const std::string first = dir_.File(fmt::format("{}a", count_));
    const std::string second = dir_.File(fmt::format("{}b", count_));
    SaveState(first, a, cut_a);
    SaveState(second, b, cut_b);
    return Diff({.a = PlaceOf(first, {a.step, a.epoch}),
                 .b = PlaceOf(second, {b.step, b.epoch}),
                 .threads = 2});
  }
  static std::vector<std::string> FieldsOf(const DiffReport& report) {
    std::vector<std::string> fields;
    for (const FieldDifference& one : report.fields)
      fields.push_back(fmt::format("{}:{}:{}", one.name, one.a, one.b));
    return fields;
  }
  const TempDir dir_;
  int count_ = 0;
};

TEST_F(DiffTest, TheSameStateInEveryPairOfLayouts) {
  const SavedState state = MakeState();
  for (const Cut a : kCuts) {
    for (const Cut b : kCuts) {
      SavedState other = state;
      other.epoch = 4;
      other.manifest.facts["threads_per_rank"] = "2";
      const auto report = Compare(state, a, other, b);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(report->same_state) << static_cast<int>(a) << static_cast<int>(b);
      EXPECT_TRUE(report->tensors.empty());
      EXPECT_EQ(report->num_tensors, 4);
      EXPECT_EQ(report->num_elements, 30 + 84 + 6 + 30);
      EXPECT_THAT(FieldsOf(*report), testing::Contains("threads_per_rank:1:2"));
      EXPECT_THAT(FieldsOf(*report), testing::Contains("epoch:1:4"));
    }
  }
}

// One element, anywhere, of any tensor, in any two layouts.
TEST_F(DiffTest, OneElementIsFoundWhereItIs) {
  std::mt19937 random(11);
  const SavedState state = MakeState();
  for (int round = 0; round < 24; ++round) {
    SavedState other = state;
    auto tensor = other.tensors.begin();
    std::advance(tensor, random() % other.tensors.size());
    const size_t at = random() % tensor->second.values.size();
    const double before = tensor->second.values[at];
    tensor->second.values[at] += 0.25;
    const auto report = Compare(state, kCuts[random() % 4], other, kCuts[random() % 4]);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_FALSE(report->same_state);
    ASSERT_EQ(report->tensors.size(), 1U);
    const TensorDifference& one = report->tensors[0];
    EXPECT_EQ(one.key, tensor->first);
    EXPECT_EQ(one.num_different, 1);
    EXPECT_EQ(one.num_elements, std::ssize(tensor->second.values));
    EXPECT_EQ(one.largest, 0.25);
    EXPECT_EQ(one.value_a, before);
    EXPECT_EQ(one.value_b, before + 0.25);
    int64_t place = 0;
    for (size_t d = 0; d < one.index.size(); ++d)
      place = place * tensor->second.shape[d] + one.index[d];
    EXPECT_EQ(place, static_cast<int64_t>(at));
    double norm = 0;
    for (const double value : state.tensors.at(one.key).values) norm += value * value;
    EXPECT_NEAR(one.relative_norm, 0.25 / std::sqrt(norm), 1e-12);
  }
}

TEST_F(DiffTest, CountsAndTheLargest) {
  const SavedState state = MakeState();
  SavedState other = state;
  std::vector<double>& values = other.tensors["weights/cube"].values;
  values[3] += 1;
  values[50] -= 7;
  values[83] += 2;
  const auto report = Compare(state, Cut::kColumns, other, Cut::kRows);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->tensors.size(), 1U);
  EXPECT_EQ(report->tensors[0].num_different, 3);
  EXPECT_EQ(report->tensors[0].largest, 7);
  EXPECT_EQ(report->tensors[0].index, (std::vector<int64_t>{4, 0, 2}));
}

TEST_F(DiffTest, NotANumberIsInfinitelyFarAndEqualToItself) {
  SavedState state = MakeState();
  state.tensors["weights/a"].values[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Compare(state, Cut::kRows, state, Cut::kColumns)->same_state);
  SavedState other = state;
  other.tensors["weights/a"].values[7] = 1;
  const auto report = Compare(state, Cut::kRows, other, Cut::kRows);
  ASSERT_EQ(report->tensors.size(), 1U);
  EXPECT_TRUE(std::isinf(report->tensors[0].largest));
  EXPECT_EQ(report->tensors[0].index, (std::vector<int64_t>{1, 2}));
  // Bits count: a zero is not its negative.
  other = MakeState();
  state = MakeState();
  state.tensors["weights/a"].values[0] = 0.0;
  other.tensors["weights/a"].values[0] = -0.0;
  const auto zeros = Compare(state, Cut::kRows, other, Cut::kRows);
  ASSERT_EQ(zeros->tensors.size(), 1U);
  EXPECT_EQ(zeros->tensors[0].num_different, 1);
  EXPECT_EQ(zeros->tensors[0].largest, 0);
}

TEST_F(DiffTest, OtherShapesTypesAndTensors) {
  const SavedState state = MakeState();
  SavedState other = state;
  other.tensors.erase("exp_avg/a");
  other.tensors["weights/new"] = {.shape = {2}, .values = {1, 2}};
  other.tensors["weights/cube"].shape = {4, 7, 3};
  other.tensors["weights/norm"].dtype = kernels::DType::kF64;
  const auto report = Compare(state, Cut::kWhole, other, Cut::kRows);
  ASSERT_TRUE(report.ok()) << report.status();
  std::vector<std::string> seen;
  for (const TensorDifference& one : report->tensors) seen.push_back(one.key + ": " + one.why);
  EXPECT_THAT(seen, testing::ElementsAre("exp_avg/a: only the first has it",
                                         "weights/cube: shapes [7, 4, 3] and [4, 7, 3]",
                                         "weights/new: only the second has it",
                                         "weights/norm: stored as F32 and F64"));
  EXPECT_EQ(report->tensors[3].num_different, 0) << "the values are the same";
}

TEST_F(DiffTest, NumbersAreStateAndTheRestIsNot) {
  const SavedState state = MakeState();
  SavedState other = state;
  other.manifest.spec_json = R"({"model":{"seq_length":16},"parallel":{"tensor":2}})";
  EXPECT_TRUE(Compare(state, Cut::kRows, other, Cut::kRows)->same_state);
  other.manifest.reals["lr"] = 0.5;
  const auto report = Compare(state, Cut::kRows, other, Cut::kRows);
  EXPECT_FALSE(report->same_state);
  EXPECT_THAT(FieldsOf(*report),
              testing::IsSupersetOf({"lr:0.001:0.5", "parallel.tensor:1:2",
                                     "parallel.data:1:", "training.precision:\"bf16\":"}));
}

// More than one block of rows, of which the last is smaller, and slices across blocks.
TEST_F(DiffTest, TensorsLargerThanABlock) {
  constexpr int64_t kLargeRows = kSanitized ? 2503 : 5003;
  SavedState state = MakeState();
  StateTensor& large = state.tensors["weights/large"];
  large.shape = {kLargeRows, 1000};
  large.values.assign(kLargeRows * 1000, 0.5);
  SavedState other = state;
  other.tensors["weights/large"].values[(kLargeRows - 4) * 1000 + 123] = 1;
  EXPECT_TRUE(Compare(state, Cut::kColumns, state, Cut::kBuckets)->same_state);
  const auto report = Compare(state, Cut::kColumns, other, Cut::kBuckets);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->tensors.size(), 1U);
  EXPECT_EQ(report->tensors[0].index, (std::vector<int64_t>{kLargeRows - 4, 123}));
  EXPECT_EQ(report->tensors[0].num_different, 1);
}

TEST_F(DiffTest, AMissingFileIsAnError) {
  const std::string folder = SaveState(dir_.path(), MakeState(1), Cut::kRows);
  SaveState(dir_.path(), MakeState(2), Cut::kRows);
  std::filesystem::remove(folder + "/rank-00001.safetensors");
  const Status status =
      Diff({.a = PlaceOf(dir_.path(), {1, 1}), .b = PlaceOf(dir_.path(), {2, 1})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(base::Message(status), testing::HasSubstr("rank-00001.safetensors"));
}

}  // namespace
}  // namespace mt::checkpoint
