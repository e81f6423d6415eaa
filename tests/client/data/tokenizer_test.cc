// `mtctl tokenizer`: what it refuses and how it says so, that its verbs are each other's inverse,
// and that `data prepare` makes the same ids.
#include <filesystem>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "tests/paths.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

const std::string kGolden = MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/";

class TokenizerVerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("mt-tokenizer-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(base::WriteFileAtomic(folder_ / name, text).ok());
    return folder_ / name;
  }
  static Ran Tokenizer(std::vector<std::string> args) {
    args.insert(args.begin(), "tokenizer");
    return Mtctl(nullptr, args);
  }
  // What it says, having printed nothing else.
  static std::string Refused(const std::vector<std::string>& args, int code = kExitInvalidInput) {
    const Ran ran = Tokenizer(args);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(ran.err.starts_with("mtctl")) << ran.err;
    return ran.err;
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerVerbsTest, IdsThatAreNone) {
  const auto decode = [&](const std::string& ids) {
    return Refused({"decode", Write("ids", ids)});
  };
  EXPECT_THAT(decode("104 x 105"), HasSubstr("ids: 'x' is no token id"));
  EXPECT_THAT(decode("104 1.5"), HasSubstr("'1.5' is no token id"));
  EXPECT_THAT(decode("99999999999"), HasSubstr("'99999999999' is no token id"));
  EXPECT_THAT(decode("104 300"), HasSubstr("300"));
  EXPECT_THAT(decode("-1"), HasSubstr("-1"));
  EXPECT_THAT(decode(std::string(1000, 'x')).size(), testing::Lt(200U));
  EXPECT_THAT(Refused({"decode", "-o", "json", Write("ids", "104")}, kExitUsage),
              HasSubstr("leave -o out"));
}

TEST_F(TokenizerVerbsTest, FilesThatAreNotThereOrNotOfThatKind) {
  const std::string nowhere = folder_ / "nowhere.json";
  const std::string text = Write("text", "hello");
  EXPECT_THAT(Refused({"encode", folder_ / "nowhere"}), HasSubstr("nowhere"));
  EXPECT_THAT(Refused({"encode", "--tokenizer", nowhere, text}), HasSubstr(nowhere));
  EXPECT_THAT(Refused({"inspect", "--tokenizer", nowhere}), HasSubstr(nowhere));
  EXPECT_THAT(Refused({"encode", "--tokenizer", "gpt2_bpe", text}), HasSubstr("vocab"));
  EXPECT_THAT(Refused({"encode", "--tokenizer", "gpt3", text}), HasSubstr("gpt3"));
  EXPECT_THAT(Refused({"inspect", "--tokenizer", Write("t.json", "{}")}), HasSubstr("t.json"));
  EXPECT_THAT(Refused({"inspect", "--vocab", kGolden + "gpt2_vocab.json", "--merges", text}),
              HasSubstr("text"));
  EXPECT_THAT(Refused({"inspect", "--tokenizer", kGolden + "llama3.json", "--eod", "<none>"}),
              HasSubstr("<none>"));
}

TEST_F(TokenizerVerbsTest, DecodeGivesBackWhatEncodeWasGiven) {
  std::string bytes;
  for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i * 7);
  const std::string text = Write("text", bytes + " The quick brown fox's 12345\n\n");
  const std::vector<std::vector<std::string>> tokenizers = {
      {},
      {"--tokenizer", kGolden + "llama3.json"},
      {"--vocab", kGolden + "gpt2_vocab.json", "--merges", kGolden + "gpt2_merges.txt"}};
  for (const std::vector<std::string>& flags : tokenizers) {
    for (const bool as_json : {false, true}) {
      std::vector<std::string> encode = {"encode", text};
      encode.insert(encode.end(), flags.begin(), flags.end());
      if (as_json) encode.insert(encode.end(), {"-o", "json"});
      const Ran encoded = Tokenizer(encode);
      ASSERT_EQ(encoded.code, 0) << encoded.err;
      std::vector<std::string> decode = {"decode", Write("ids", encoded.out)};
      decode.insert(decode.end(), flags.begin(), flags.end());
      const Ran decoded = Tokenizer(decode);
      EXPECT_EQ(decoded.code, 0) << decoded.err;
      EXPECT_TRUE(decoded.out == base::ReadFile(text).value());
    }
  }
}

TEST_F(TokenizerVerbsTest, TrainRefusesWhatCannotBe) {
  const std::string text = Write("text", "aaab aaab aaab\n");
  const std::string output = folder_ / "t.json";
  const auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"train", "--output", output};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  EXPECT_THAT(Refused(train({"--input", folder_ / "nowhere"})), HasSubstr("nowhere"));
  EXPECT_THAT(Refused(train({"--input", text, "--vocab-size", "100"})), HasSubstr("100"));
  EXPECT_THAT(Refused(train({"--input", text, "--pattern", "(a"})),
              HasSubstr("not one of PCRE2: missing closing parenthesis"));
  EXPECT_FALSE(std::filesystem::exists(output));
  const Ran few = Tokenizer(train({"--input", text, "--vocab-size", "1000"}));
  EXPECT_EQ(few.code, 0);
  EXPECT_THAT(few.err, HasSubstr("not 1000: no other pair occurs"));
  EXPECT_THAT(Refused(train({"--input", text})), HasSubstr("exists already"));
  const Ran inspected = Tokenizer({"inspect", "--tokenizer", output});
  EXPECT_THAT(inspected.out, HasSubstr("<|endoftext|>"));
  const auto tree =
      nlohmann::json::parse(Tokenizer({"inspect", "--tokenizer", output, "-o", "json"}).out);
  EXPECT_EQ(tree.size(), 4U) << tree;  // docs/schemas/tokenizer.json
}

// Ids of u16, of one document after the other.
TEST_F(TokenizerVerbsTest, PrepareMakesTheSameIds) {
  const std::vector<std::string> texts = {kGolden + "text.txt", Write("two", "a second document")};
  const std::vector<std::vector<std::string>> tokenizers = {
      {"--tokenizer", kGolden + "llama3.json"},
      {"--vocab", kGolden + "gpt2_vocab.json", "--merges", kGolden + "gpt2_merges.txt"}};
  for (const std::vector<std::string>& flags : tokenizers) {
    const auto run = [&](std::vector<std::string> args) {
      args.insert(args.end(), flags.begin(), flags.end());
      const Ran ran = Mtctl(nullptr, args);
      EXPECT_EQ(ran.code, 0) << ran.err;
      return ran.out;
    };
    std::string expected;
    for (const std::string& text : texts) {
      std::istringstream words(run({"tokenizer", "encode", text}));
      for (uint16_t id = 0; words >> id;)
        expected.append(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    EXPECT_GT(expected.size(), 1000U);
    run({"data", "prepare", "--input", texts[0], texts[1], "--output", folder_ / "d",
         "--overwrite"});
    EXPECT_TRUE(base::ReadFile(folder_ / "d.bin").value() == expected);
    EXPECT_EQ(Mtctl(nullptr, {"data", "verify", folder_ / "d"}).code, 0);
  }
}

}  // namespace
}  // namespace mt::client
