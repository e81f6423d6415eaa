// Figures of a data set, and what a reading of all of it finds.
#include "worker/data/token_files/inspect.h"

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/token_files/verify.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(InspectTest, ReportsFigures) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {3, 0, 9});
  const auto report = Inspect({.prefix = dir.Path("d"), .preview_tokens = 5});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->documents, 3);
  EXPECT_EQ(report->empty_documents, 0);
  EXPECT_EQ(report->sequences, 3);
  EXPECT_EQ(report->tokens, 12);
  EXPECT_EQ(report->bin_bytes, 48);
  EXPECT_EQ(report->min_length, 0);
  EXPECT_EQ(report->max_length, 9);
  EXPECT_DOUBLE_EQ(report->mean_length, 4.0);
  EXPECT_EQ(report->token_type, TokenType::kI32);
  EXPECT_EQ(report->idx_digest.size(), 32U);
  EXPECT_THAT(report->first_tokens, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(report->samples, IsEmpty());
}

TEST(InspectTest, LengthsByPowersOfTwoAndSpreadSamples) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {2, 3, 4, 7, 8, 31});
  const auto report = Inspect({.prefix = dir.Path("d"), .samples = 3, .sample_tokens = 4});
  ASSERT_TRUE(report.ok()) << report.status();
  std::vector<std::array<int64_t, 3>> bins;
  for (const LengthBin& bin : report->lengths) bins.push_back({bin.low, bin.high, bin.sequences});
  using Bin = std::array<int64_t, 3>;
  EXPECT_THAT(bins, ElementsAre(Bin{2, 3, 2}, Bin{4, 7, 2}, Bin{8, 15, 1}, Bin{16, 31, 1}));
  ASSERT_EQ(report->samples.size(), 3U);
  EXPECT_EQ(report->samples[0].document, 0);
  EXPECT_THAT(report->samples[0].tokens, ElementsAre(0, 1));
  EXPECT_EQ(report->samples[2].document, 4);
  EXPECT_EQ(report->samples[2].length, 8);
  EXPECT_THAT(report->samples[2].tokens, ElementsAre(16, 17, 18, 19));
  EXPECT_EQ(Inspect({.prefix = dir.Path("d"), .samples = 100})->samples.size(), 6U);
}

TEST(InspectTest, HoldsASampleOfTheIdsAgainstTheRecord) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {100, 200});
  ASSERT_TRUE(WriteTokenizerRecord(dir.Path("d"), {.type = "null", .vocab_size = 300}).ok());
  EXPECT_TRUE(Inspect({.prefix = dir.Path("d")}).ok());
  ASSERT_TRUE(WriteTokenizerRecord(dir.Path("d"), {.type = "null", .vocab_size = 299}).ok());
  EXPECT_THAT(base::Message(Inspect({.prefix = dir.Path("d")}).status()),
              HasSubstr("d.bin: token 299 has id 299, outside the vocabulary of 299 (document 1)"));
}

TEST(VerifyTest, ReadsAllOfIt) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {300, 0, 700000, 5});
  int64_t told = 0;
  const auto count = [&](int64_t done, int64_t) { told = done; };
  const auto report =
      VerifyDataset({.prefix = dir.Path("d"), .vocab_size = 1000000, .progress = count});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens, 700305);
  EXPECT_EQ(report->largest_id, 700304);
  EXPECT_EQ(report->documents, 4);
  EXPECT_EQ(report->empty_documents, 1);
  EXPECT_EQ(report->unreferenced_bytes, 0);
  EXPECT_EQ(report->tokens_digest, base::Hash128Hex(ReadText(dir.Path("d.bin"))));
  const auto small = VerifyDataset({.prefix = dir.Path("d"), .vocab_size = 700304});
  EXPECT_THAT(base::Message(small.status()),
              HasSubstr("d.bin: token 700304 has id 700304, outside the vocabulary of 700304"));
  WriteText(dir.Path("d.bin"), ReadText(dir.Path("d.bin")) + "more");
  EXPECT_EQ(VerifyDataset({.prefix = dir.Path("d")})->unreferenced_bytes, 4);
}

}  // namespace
}  // namespace mt::data
