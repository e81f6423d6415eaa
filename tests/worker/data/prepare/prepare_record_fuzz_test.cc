// The record of a data set that is being made, damaged and hostile: it is refused, or read and
// written again as it was. A crash or undefined behaviour (the sanitizers' builds run this too) is
// a defect. How many: tests/fuzz_time.h.
#include <gtest/gtest.h>

#include "tests/fuzz_time.h"
#include "tests/worker/checkpoint/fuzz_mutator.h"
#include "tests/worker/data/fuzz_corpus.h"
#include "worker/data/prepare/prepare_record.h"

namespace mt::data {
namespace {

bool ReadHostileRecord(std::string_view text) {
  const auto record = ParseRecord(text);
  if (!record.ok()) {
    EXPECT_TRUE(absl::IsDataLoss(record.status())) << record.status();
    return false;
  }
  EXPECT_GE(record->position.file, 0);
  EXPECT_GE(record->position.offset, 0);
  EXPECT_GE(record->bin_bytes, 0);
  EXPECT_GE(record->placed, 0);
  const std::string again = RecordText(*record);
  const auto same = ParseRecord(again);
  EXPECT_TRUE(same.ok() && RecordText(*same) == again) << again;
  return true;
}

TEST(PrepareRecordFuzzTest, NumbersAreWholeAndWithinTheirRange) {
  const std::string good =
      RecordText({.made_of = {.options = "byte", .inputs = "00"}, .tokens = 7});
  ASSERT_TRUE(ReadHostileRecord(good));
  const size_t at = good.find("\"tokens\": 7");
  ASSERT_NE(at, std::string::npos);
  for (const char* value :
       {"-1", "7.5", "1e300", "true", "null", "\"7\"", "[7]", "9223372036854775807",
        "72057594037927937", "18446744073709551615", "1e999"}) {
    std::string text = good;
    EXPECT_FALSE(ReadHostileRecord(text.replace(at + 10, 1, value))) << value;
  }
  std::string largest = good;
  EXPECT_TRUE(ReadHostileRecord(largest.replace(at + 10, 1, "72057594037927936")));
}

TEST(PrepareRecordFuzzTest, DamagedRecordsAreRefusedOrRead) {
  std::vector<std::string> texts = {RecordText({.made_of = {.options = "byte", .inputs = "00"}})};
  for (CorpusInput& input : Corpus("prepare_records")) {
    ReadHostileRecord(input.bytes);
    EXPECT_FALSE(HasFailure()) << input.name;
    texts.push_back(std::move(input.bytes));
  }
  FuzzTime time(1000, 6);
  checkpoint::Mutator mutator(time.seed());
  int64_t read = 0;
  while (time.Next()) {
    const std::string text =
        mutator.Mutate(texts[mutator.Below(texts.size())], texts[mutator.Below(texts.size())]);
    read += ReadHostileRecord(text) ? 1 : 0;
    EXPECT_FALSE(HasFailure()) << text.substr(0, 2000);
  }
  EXPECT_TRUE(read > 0 || time.round() <= 100) << "changes of words must be among it";
}

}  // namespace
}  // namespace mt::data
