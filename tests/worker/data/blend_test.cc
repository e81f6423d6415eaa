// Blends of data sets: Megatron's draw, and the data sets that a job's lists make. Random cases
// against numpy: tests/golden/data_order.
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/blend_plan.h"
#include "worker/data/data_source.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Members and their samples as two rows, as the goldens print them.
std::pair<std::vector<int64_t>, std::vector<int64_t>> Rows(const BlendDraw& draw) {
  std::pair<std::vector<int64_t>, std::vector<int64_t>> rows;
  for (int64_t i = 0; i < draw.num_samples(); ++i) {
    rows.first.push_back(draw.At(i).member);
    rows.second.push_back(draw.At(i).sample);
  }
  return rows;
}

BlendDraw Draw(const std::vector<double>& weights, int64_t samples) {
  return BlendDraw::ByWeights(weights, samples);
}

TEST(BlendDrawTest, MegatronGoldens) {
  const auto two = Rows(Draw({0.3, 0.7}, 12));
  EXPECT_THAT(two.first, ElementsAre(1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1));
  EXPECT_THAT(two.second, ElementsAre(0, 0, 1, 2, 1, 3, 4, 2, 5, 6, 3, 7));
  const auto three = Rows(Draw({0.5, 0.3, 0.2}, 12));
  EXPECT_THAT(three.first, ElementsAre(0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1));
  EXPECT_THAT(three.second, ElementsAre(0, 0, 0, 1, 1, 2, 1, 3, 2, 4, 5, 3));
}

// Blocks of counts, their borders included, against counting from the start.
TEST(BlendDrawTest, CountsHoldAcrossBlocks) {
  const BlendDraw draw = Draw({5, 0.01, 3, 1}, 5000);
  std::vector<int64_t> taken(4, 0);
  for (int64_t i = 0; i < draw.num_samples(); ++i) {
    ASSERT_EQ(draw.Taken(i), taken) << i;
    const BlendSample sample = draw.At(i);
    ASSERT_EQ(sample.sample, taken[static_cast<size_t>(sample.member)]++) << i;
  }
  EXPECT_EQ(draw.Taken(draw.num_samples()), taken);
}

TEST(BlendDrawTest, ExhaustiveTakesEachSampleOnce) {
  const std::vector<int64_t> sizes = {7, 0, 100, 1, 33};
  const BlendDraw draw = BlendDraw::Exhaustive(sizes);
  EXPECT_EQ(draw.num_samples(), 141);
  EXPECT_EQ(draw.Taken(141), sizes);
}

TEST(BlendDrawTest, MembersAreAskedForHalfAPercentMore) {
  const auto asked = AskedOfMembers(NormalizeWeights(std::vector<double>{1, 2}), 1000);
  EXPECT_THAT(asked, ElementsAre(336, 671)) << "of 334 and 667";
}

class BlendTest : public ::testing::Test {
 protected:
  // Token t of sequence i of data set `name` is first + 10 i + t.
  void Write(std::string_view name, int sequences, int32_t first) {
    WriteDataset(
        dir_.Path(name), std::vector<int32_t>(static_cast<size_t>(sequences), 10), TokenType::kI32,
        [first](int64_t i, int64_t t) { return static_cast<int32_t>(first + 10 * i + t); });
  }
  void SetUp() override {
    Write("a", 100, 0);
    Write("b", 50, 10'000);
    args_ = {.path = {{dir_.Path("a"), 3}, {dir_.Path("b"), 1}},
             .split = "80,20",
             .seq_length = 8,
             .vocab_size = 20'000,
             .seed = 3,
             .train_samples = 400};
  }
  std::string Refusal() const {
    const auto source = OpenDataSource(args_);
    return source.ok() ? "" : base::Message(source.status());
  }
  static std::vector<int32_t> Inputs(const Dataset& data, int64_t sample) {
    std::vector<int32_t> tokens(9);
    std::vector<float> weights(8);
    EXPECT_TRUE(data.Read(sample, tokens, weights).ok());
    return tokens;
  }

  TempDir dir_;
  DataSourceArgs args_;
};

TEST_F(BlendTest, TakesMembersByWeightAndRepeatsThem) {
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  int64_t of_a = 0;
  for (int64_t i = 0; i < 400; ++i) of_a += Inputs(*source->train, i)[0] < 10'000 ? 1 : 0;
  EXPECT_EQ(of_a, 300);
  EXPECT_THAT(source->train->ConsumedByMember(400), ElementsAre(300, 100));
  const IndexRecord& record = source->train->record();
  EXPECT_EQ(record.weights, "3,1");
  ASSERT_EQ(record.members.size(), 2U);
  EXPECT_EQ(record.members[0].samples_asked, 302) << "ceil(300 x 1.005)";
  EXPECT_EQ(record.members[1].epochs, 3) << "808 tokens of 400";
}

TEST_F(BlendTest, WithoutWeightsEachSampleComesOnce) {
  for (DataMember& member : args_.path) member.weight.reset();
  args_.train_samples = 148;  // 99 and 49
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  std::set<std::vector<int32_t>> seen;
  for (int64_t i = 0; i < 148; ++i) seen.insert(Inputs(*source->train, i));
  EXPECT_EQ(seen.size(), 148U);
  args_.train_samples = 149;
  EXPECT_THAT(Refusal(), HasSubstr("have 148 train samples, each once, but 149 are asked for"));
}

TEST_F(BlendTest, AWholeSplitHasEveryLabelOfEveryMember) {
  args_.whole_valid = true;
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->valid, nullptr);
  double labels = 0;
  for (int64_t i = 0; i < source->whole_valid->num_samples(); ++i) {
    std::vector<int32_t> tokens(9);
    std::vector<float> weights(8);
    ASSERT_TRUE(source->whole_valid->Read(i, tokens, weights).ok());
    labels += std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  EXPECT_EQ(labels, 199 + 99) << "all but the first token of each";
}

TEST_F(BlendTest, AnEmptyPartNamesItsDataSet) {
  Write("tiny", 1, 0);
  args_.path.push_back({dir_.Path("tiny"), 1});
  args_.whole_valid = true;
  EXPECT_THAT(Refusal(), HasSubstr(dir_.Path("tiny") + " leaves none for valid"));
  args_.path = {{dir_.Path("a"), 1}, {dir_.Path("b"), std::nullopt}};
  EXPECT_THAT(Refusal(), HasSubstr("give all or none"));
}

TEST_F(BlendTest, AnotherBlendIsNotTheCheckpointsOrder) {
  const IndexRecord saved = OpenDataSource(args_)->train->record();
  EXPECT_TRUE(CheckSameOrder(saved, OpenDataSource(args_)->train->record()).ok());
  args_.path[0].weight = 2;
  const auto told = [&] {
    return base::Message(CheckSameOrder(saved, OpenDataSource(args_)->train->record()));
  };
  EXPECT_THAT(told(), HasSubstr("weights: checkpoint '3,1', this run '2,1'"));
  args_.path[0].weight = 3;
  Write("b", 60, 10'000);
  EXPECT_THAT(told(), HasSubstr("data set 2 (" + dir_.Path("b") + "): digest of the .idx"));
  args_.path.pop_back();
  EXPECT_THAT(told(), HasSubstr("data sets of the blend: checkpoint '2', this run '0'"));
}

// Weights, data sets, their number, and a blend of what was one; not what is no matter of blends.
TEST_F(BlendTest, AnotherBlendIsTakenOnPurpose) {
  const IndexRecord saved = OpenDataSource(args_)->train->record();
  const auto same = [&](const IndexRecord& before, bool files = false) {
    return CheckSameOrder(before, OpenDataSource(args_)->train->record(),
                          {.files = files, .blend = true});
  };
  EXPECT_TRUE(same(saved).ok());
  args_.path[0].weight = 1;
  EXPECT_TRUE(same(saved).ok()) << same(saved);
  EXPECT_THAT(base::Message(CheckSameOrder(saved, OpenDataSource(args_)->train->record())),
              HasSubstr("is gone on with on purpose with data.allow_new_blend"));
  EXPECT_FALSE(CheckSameOrder(saved, OpenDataSource(args_)->train->record(), {.files = true}).ok());
  Write("c", 70, 5'000);
  args_.path.push_back({dir_.Path("c"), 2});
  EXPECT_TRUE(same(saved).ok()) << same(saved);
  std::swap(args_.path[0], args_.path[2]);
  EXPECT_TRUE(same(saved, /*files=*/true).ok());
  args_.path.resize(1);
  args_.path[0].weight.reset();
  EXPECT_TRUE(same(saved).ok()) << "one data set instead of a blend: " << same(saved);
  const IndexRecord single = OpenDataSource(args_)->train->record();
  args_.path = {{dir_.Path("a"), 3}, {dir_.Path("b"), 1}};
  EXPECT_TRUE(same(single).ok()) << "and a blend instead of one: " << same(single);
  args_.seed = 4;
  EXPECT_THAT(base::Message(same(saved)), HasSubstr("data.seed: checkpoint '3', this run '4'"));
  args_.seed = 3;
  args_.train_samples = 500;
  EXPECT_THAT(base::Message(same(saved)), HasSubstr("samples asked: checkpoint '400'"));
  // Of runs without a blend it allows nothing.
  args_.train_samples = 400;
  args_.path = {{dir_.Path("b"), std::nullopt}};
  EXPECT_FALSE(same(single).ok());
}

TEST_F(BlendTest, NoLossBehindTheTokenThatEndsDocuments) {
  args_.no_loss_behind = 17;  // the eighth of the second sequence
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok());
  int64_t masked = 0;
  for (int64_t i = 0; i < 400; ++i) {
    std::vector<int32_t> tokens(9);
    std::vector<float> weights(8);
    ASSERT_TRUE(source->train->Read(i, tokens, weights).ok());
    for (size_t t = 0; t < 8; ++t) {
      EXPECT_EQ(weights[t], tokens[t] == 17 ? 0 : 1);
      masked += weights[t] == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(masked, 1);
}

TEST(DataPathTest, ReadsMegatronsLists) {
  const auto pairs = ParseDataPath("0.25 wiki/en\n.75\tbooks\n");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  ASSERT_EQ(pairs->size(), 2U);
  EXPECT_EQ((*pairs)[1].prefix, "books");
  EXPECT_EQ((*pairs)[1].weight, 0.75);
  const auto prefixes = ParseDataPath("a b c");
  ASSERT_EQ(prefixes->size(), 3U);
  EXPECT_FALSE((*prefixes)[0].weight.has_value());
  EXPECT_FALSE(ParseDataPath(" \n").ok());
  EXPECT_THAT(base::Message(ParseDataPath("0 a 1 b").status()), HasSubstr("the weight 0 of a"));
  EXPECT_FALSE(ParseDataPath("nan a 1 b").ok());
}

}  // namespace
}  // namespace mt::data
