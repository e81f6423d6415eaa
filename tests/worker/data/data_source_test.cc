// From the job's data section to data sets: what is opened, what is refused, and what a checkpoint
// compares.
#include "worker/data/data_source.h"

#include <set>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"

namespace mt::data {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class DataSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NumberedDataset(dir_.Path("all"), std::vector<int32_t>(100, 10));
    args_ = {.path = {{dir_.Path("all")}},
             .split = "80,20",
             .seq_length = 8,
             .vocab_size = 1000,
             .seed = 3,
             .train_samples = 90,
             .valid_samples = kWholeSplit};
  }

  std::string Refusal() {
    const auto source = OpenDataSource(args_);
    EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument) << source.status();
    return base::Message(source.status());
  }

  TempDir dir_;
  DataSourceArgs args_;
};

TEST_F(DataSourceTest, CutsOneDataSetByTheSplit) {
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->test, nullptr);
  EXPECT_EQ(source->train->num_samples(), 99);  // 800 tokens, 799 / 8
  EXPECT_EQ(source->valid->num_samples(), 25);  // 200 tokens: 199 labels, the last sample has 7
  std::vector<int32_t> tokens(9);
  std::vector<float> weights(8);
  for (int64_t i = 0; i < 25; ++i) {
    ASSERT_TRUE(source->valid->Read(i, tokens, weights).ok());
    EXPECT_GE(tokens[0], 800) << "only tokens of the last 20 sequences";
  }
  const auto records = source->Records();
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_EQ(records[0].split_name, "train");
  EXPECT_EQ(records[1].split_name, "valid");
  EXPECT_EQ(records[0].split, "80,20");
  EXPECT_EQ(records[0].idx_digest, records[1].idx_digest);
}

TEST_F(DataSourceTest, OpensADataSetPerSplit) {
  NumberedDataset(dir_.Path("valid"), {30});
  args_.train = args_.path;
  args_.path.clear();
  EXPECT_THAT(Refusal(), HasSubstr("data.valid: missing"));
  args_.valid = {{dir_.Path("valid")}};
  args_.valid_samples = 10;
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->train->num_samples(), 124);  // 1000 tokens
  EXPECT_GE(source->valid->num_samples(), 10);
  EXPECT_EQ(source->valid->record().split, "");
  EXPECT_EQ(source->valid->record().epochs, 3);  // 81 tokens of 30
}

TEST_F(DataSourceTest, MockNeedsNoFiles) {
  args_.path.clear();
  args_.mock = true;
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->train->num_samples(), 90);
  EXPECT_EQ(source->valid->num_samples(), kMockWholeSplitSamples);
  EXPECT_EQ(source->train->record().source, "mock");
}

TEST_F(DataSourceTest, RefusesContradictionsWithTheFieldsName) {
  args_.mock = true;
  EXPECT_THAT(Refusal(), HasSubstr("exactly one of data.path"));
  args_.mock = false;
  args_.seed = int64_t{1} << 32;
  EXPECT_THAT(Refusal(), HasSubstr("data.seed: 4294967296"));
  args_.seed = 1;
  args_.split = "100,0,0";
  EXPECT_THAT(Refusal(), HasSubstr("leaves none for valid"));
  args_.split = "x";
  EXPECT_THAT(Refusal(), HasSubstr("split 'x'"));
  args_.split = "1";
  args_.valid_samples = 0;
  EXPECT_TRUE(OpenDataSource(args_).ok());
  args_.train_samples = 0;
  EXPECT_THAT(Refusal(), HasSubstr("must be positive"));
}

TEST_F(DataSourceTest, TooLittleDataNamesTheDataSet) {
  args_.seq_length = 500;
  EXPECT_TRUE(OpenDataSource(args_).ok()) << "200 tokens, kept partial";
  args_.split = "999,1";  // no validation sequence
  EXPECT_FALSE(OpenDataSource(args_).ok());
  NumberedDataset(dir_.Path("tiny"), {1});
  args_.path = {{dir_.Path("tiny")}};
  args_.split = "0,1";
  args_.train_samples = 1;
  EXPECT_THAT(Refusal(), HasSubstr("leaves none for train"));
}

// Ids that a data set has as inputs or as labels that count.
std::set<int32_t> IdsOf(const Dataset& data) {
  std::set<int32_t> ids;
  std::vector<int32_t> tokens(static_cast<size_t>(data.seq_length()) + 1);
  std::vector<float> weights(static_cast<size_t>(data.seq_length()));
  for (int64_t i = 0; i < data.num_samples(); ++i) {
    const Status read = data.Read(i, tokens, weights);
    EXPECT_TRUE(read.ok()) << read;
    for (size_t t = 0; t < weights.size(); ++t)
      if (weights[t] > 0) ids.insert({tokens[t], tokens[t + 1]});
  }
  return ids;
}

TEST_F(DataSourceTest, OneDocumentIsDividedByTokens) {
  NumberedDataset(dir_.Path("one"), {1000});
  args_.path = {{dir_.Path("one")}};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("the 1 sequences of"), HasSubstr("leaves none for valid"),
                               HasSubstr("data.split_by=tokens")));
  args_.split_by = SplitBy::kTokens;
  const auto source = OpenDataSource(args_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->train->num_samples(), 99);
  EXPECT_EQ(source->valid->num_samples(), 25);  // 199 labels
  std::set<int32_t> all = IdsOf(*source->train);
  EXPECT_THAT(all, AllOf(SizeIs(testing::Ge(793)), Each(testing::Lt(800))));  // whole samples
  const std::set<int32_t> held_out = IdsOf(*source->valid);
  EXPECT_THAT(held_out, AllOf(SizeIs(200), Each(testing::Ge(800))));
  EXPECT_EQ(source->Records()[0].split, "80,20 by tokens");
}

TEST_F(DataSourceTest, APartWithoutTokensIsNamed) {
  args_.split_by = SplitBy::kTokens;
  args_.split = "969,30,1";
  NumberedDataset(dir_.Path("few"), {4, 6});
  args_.path = {{dir_.Path("few")}};
  args_.train_samples = 1;
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("the 10 tokens of"), HasSubstr("leaves none for valid"),
                               Not(HasSubstr("split_by"))));
  NumberedDataset(dir_.Path("few"), {20, 14});  // its last token alone
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("valid data of"), HasSubstr("with 1 tokens")));
}

// Of other parts nothing is read.
TEST_F(DataSourceTest, IdsOfAPartByTokensAreItsOwn) {
  WriteDataset(dir_.Path("one"), {1000}, TokenType::kI32,
               [](int64_t, int64_t t) { return t < 800 ? 1 : 5000; });
  args_.path = {{dir_.Path("one")}};
  args_.split_by = SplitBy::kTokens;
  args_.valid_samples = 0;
  EXPECT_TRUE(OpenDataSource(args_).ok());
  args_.valid_samples = 1;
  EXPECT_THAT(Refusal(), HasSubstr("5000"));
}

TEST(ValidSamplesAskedTest, CountsTheFirstEvaluationToo) {
  EXPECT_EQ(ValidSamplesAsked(1000, 100, 10, 32, false), 11 * 10 * 32);
  EXPECT_EQ(ValidSamplesAsked(1099, 100, 10, 32, false), 11 * 10 * 32);
  EXPECT_EQ(ValidSamplesAsked(99, 100, 10, 32, false), 320);
  EXPECT_EQ(ValidSamplesAsked(99, 0, 10, 32, false), 0);
  EXPECT_EQ(ValidSamplesAsked(1000, 100, 10, 32, true), 320) << "the same ones each time";
  EXPECT_EQ(ValidSamplesAsked(1000, 0, 10, 32, true), 0);
}

TEST(IndexRecordTest, EveryDifferenceIsNamedWithBothValues) {
  const IndexRecord saved = {.split_name = "train",
                             .source = "/data/a",
                             .samples_asked = 100,
                             .epochs = 2,
                             .separate_last_epoch = true,
                             .seed = 1234,
                             .seq_length = 8,
                             .split = "969,30,1",
                             .samples_built = 120,
                             .idx_digest = "aa",
                             .bin_digest = "cc"};
  IndexRecord current = saved;
  current.source = "/elsewhere/a";  // a moved data set is the same data set
  EXPECT_TRUE(CheckSameOrder(saved, current).ok());
  current.samples_asked = 150;
  current.seed = 7;
  Status status = CheckSameOrder(saved, current);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::Message(status), HasSubstr("samples asked: checkpoint '100', this run '150'"));
  EXPECT_THAT(base::Message(status), HasSubstr("data.seed: checkpoint '1234', this run '7'"));
  EXPECT_THAT(base::Message(status), Not(HasSubstr("epochs:")));
  // Each field alone is enough.
  const std::vector<void (*)(IndexRecord*)> changes = {
      [](IndexRecord* r) { r->epochs = 3; },
      [](IndexRecord* r) { r->seq_length = 9; },
      [](IndexRecord* r) { r->separate_last_epoch = false; },
      [](IndexRecord* r) { r->split = "1"; },
      [](IndexRecord* r) { r->split = SplitText(r->split, SplitBy::kTokens); },
      [](IndexRecord* r) { r->samples_built = 121; },
      [](IndexRecord* r) { r->idx_digest = "bb"; },
      [](IndexRecord* r) { r->bin_digest = "dd"; },
  };
  for (const auto& change : changes) {
    current = saved;
    change(&current);
    EXPECT_FALSE(CheckSameOrder(saved, current).ok());
  }
  current = saved;
  current.bin_digest = "";
  EXPECT_TRUE(CheckSameOrder(saved, current).ok()) << "not known is no difference";
  EXPECT_TRUE(CheckSameOrder(current, saved).ok());
}

}  // namespace
}  // namespace mt::data
