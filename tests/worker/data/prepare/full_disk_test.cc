// A disk that is full in the later passes of a conversion: one error that names the file, and the
// same command goes on to the same bytes. Of the first pass: resume_test.cc.
#include <gmock/gmock.h>

#include "tests/worker/data/room_limit.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/tokenizer.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

class FullDiskTest : public ::testing::Test {
 protected:
  // `documents` of so many bytes each, all different.
  void Write(int documents, size_t bytes) {
    std::string text;
    for (int i = 0; i < documents; ++i) {
      std::string document = std::to_string(i);
      document.resize(bytes, static_cast<char>('a' + i % 26));
      text += document + "\n%\n";
    }
    WriteText(dir_.Path("text"), text);
    args_.inputs = {dir_.Path("text")};
    args_.output_prefix = dir_.Path("d");
    args_.tokenizer = tokenizer_.get();
    args_.append_eod = true;
    args_.rule = DocumentRule::kSeparator;
    args_.separator = "%";
  }
  // The pair of a run that has room, under another name.
  std::pair<std::string, std::string> MadeWithRoom() {
    PrepareArgs args = args_;
    args.output_prefix = dir_.Path("room");
    const auto stats = Prepare(args);
    EXPECT_TRUE(stats.ok()) << stats.status();
    return {ReadText(dir_.Path("room.bin")), ReadText(dir_.Path("room.idx"))};
  }
  void ExpectFull(const Status& status, const std::string& file) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(base::Message(status), HasSubstr(dir_.Path(file)));
    EXPECT_THAT(base::Message(status), HasSubstr("free space"));
    EXPECT_THAT(base::Message(status), HasSubstr("the same command goes on"));
    EXPECT_FALSE(base::Exists(dir_.Path("d.idx")));
    EXPECT_FALSE(base::Exists(dir_.Path("d.bin")));
  }
  void ExpectGoesOn(const std::pair<std::string, std::string>& expected) {
    const auto stats = Prepare(args_);
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_TRUE(stats->resumed);
    EXPECT_TRUE(ReadText(dir_.Path("d.bin")) == expected.first);
    EXPECT_TRUE(ReadText(dir_.Path("d.idx")) == expected.second);
    EXPECT_FALSE(base::Exists(dir_.Path("d.prepare.json")));
  }

  const TempDir dir_;
  const std::unique_ptr<Tokenizer> tokenizer_ = *MakeTokenizer({.type = "byte"});
  PrepareArgs args_;
};

TEST_F(FullDiskTest, InTheMiddleOfTheShuffle) {
  Write(700, 2000);  // 2.8 MB of tokens
  args_.shuffle_documents = true;
  const auto expected = MadeWithRoom();
  ASSERT_GT(expected.first.size(), 2'500'000U);
  {
    const RoomLimit limit;
    args_.progress = [&](const PrepareProgress& progress) {
      // The first pass is over: its files are larger.
      if (progress.shuffling) limit.Set(1'500'000);
      return true;
    };
    ExpectFull(Prepare(args_).status(), "d.bin.reordered.partial at byte");
  }
  args_.progress = {};
  ExpectGoesOn(expected);
}

// The index of many short documents is larger than their tokens.
TEST_F(FullDiskTest, AtTheIndex) {
  Write(3000, 4);
  for (const bool shuffle : {false, true}) {
    args_.shuffle_documents = shuffle;
    args_.overwrite = true;
    const auto expected = MadeWithRoom();
    ASSERT_GT(expected.second.size(), 50'000U);
    ASSERT_LT(expected.first.size(), 40'000U);
    std::filesystem::remove(dir_.Path("d.bin"));
    std::filesystem::remove(dir_.Path("d.idx"));
    {
      const RoomLimit limit(45'000);
      ExpectFull(Prepare(args_).status(), "d.idx.partial at byte");
    }
    ExpectGoesOn(expected);
  }
}

}  // namespace
}  // namespace mt::data
