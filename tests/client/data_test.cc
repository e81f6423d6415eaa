// What `mtctl data prepare` refuses, and how it says so.
#include <algorithm>
#include <filesystem>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

class PrepareTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mt-prepare-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(base::WriteFileAtomic(folder_ / name, text).ok());
    return folder_ / name;
  }
  Ran Prepare(const std::string& input, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"data", "prepare", "--input", input, "--append-eod"};
    args.insert(args.end(), more.begin(), more.end());
    if (std::ranges::find(args, "--output") == args.end())
      args.insert(args.end(), {"--output", folder_ / "out"});
    return Mtctl(nullptr, args);
  }
  // The refusal, and that nothing was made.
  std::string Refused(const std::string& input, const std::vector<std::string>& more = {}) const {
    const Ran ran = Prepare(input, more);
    EXPECT_EQ(ran.code, kExitInvalidInput) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out.bin"));
    return ran.err;
  }

  std::filesystem::path folder_;
};

TEST_F(PrepareTest, CompressedInputs) {
  const std::string gzip = Write("a.txt", std::string("\x1F\x8B\x08\0\0", 5));
  EXPECT_EQ(Refused(gzip), "mtctl: " + gzip +
                               " is compressed (gzip): unpack it first, with gunzip "
                               "-k " +
                               gzip + "\n");
  EXPECT_THAT(Refused(Write("a", "\x28\xB5\x2F\xFD...")), HasSubstr("(zstd)"));
  EXPECT_THAT(Refused(Write("a",
                            "\xFD"
                            "7zXZ...")),
              HasSubstr("(xz)"));
  EXPECT_THAT(Refused(Write("a", "BZh91AY")), HasSubstr("(bzip2)"));
  EXPECT_THAT(Refused(gzip, {"--jsonl-key", "text"}), HasSubstr("(gzip)"));
}

TEST_F(PrepareTest, LinesOfJsonWithoutAKey) {
  const std::string lines = Write("a.txt", "{\"id\": 3, \"body\": \"one\"}\n{\"body\": \"two\"}\n");
  EXPECT_THAT(Refused(lines), HasSubstr("--jsonl-key body takes the text of each line\n"));
  const std::string text = "{\"text\": \"" + std::string(5000, 'x') + "\"}\n";
  EXPECT_THAT(Refused(Write("long", text)), HasSubstr("--jsonl-key KEY takes"))
      << "what follows the part that was read may be the text";
  const auto advised = [&](const std::string& line) { return Refused(Write("c", line + "\n")); };
  EXPECT_THAT(advised(R"({"text": "long", "id": "a17 and more"})"), HasSubstr("key text takes"));
  EXPECT_THAT(advised(R"({"content": "x", "author": "someone"})"), HasSubstr("key content takes"));
  EXPECT_THAT(advised(R"({"text": 3, "id": "a17", "story": "a long one", "title": "one"})"),
              HasSubstr("key story takes"));
  // With a key, and text that merely begins with a brace, it goes on.
  EXPECT_EQ(Prepare(lines, {"--jsonl-key", "body"}).code, 0);
  EXPECT_EQ(Prepare(Write("b", "{braces} are text\n"), {"--overwrite"}).code, 0);
  EXPECT_EQ(Prepare(lines, {"--overwrite", "--separator", "%"}).code, 0);  // as it was asked for
}

TEST_F(PrepareTest, OutputSeparatorAndTokenizer) {
  const std::string text = Write("a.txt", "a text\n%\nanother\n");
  const std::string folder = folder_ / "folder";
  EXPECT_EQ(Refused(text, {"--output", folder + "/"}), "mtctl: --output " + folder +
                                                           "/ is a folder: give a prefix in it, " +
                                                           folder + "/text_document\n");
  std::filesystem::create_directories(folder);
  EXPECT_THAT(Refused(text, {"--output", folder}), HasSubstr("is a folder"));
  EXPECT_THAT(Refused(text, {"--tokenizer", "null"}), HasSubstr("makes no tokens of text"));
  const Ran separator = Prepare(text, {"--separator", ""});
  EXPECT_EQ(separator.code, kExitUsage);
  EXPECT_EQ(separator.err,
            "mtctl data prepare: --separator: is empty; leave it out for one "
            "document per file\n");
}

TEST_F(PrepareTest, OneDocumentIsSaid) {
  const std::string text = Write("a.txt", "a text\n%\nanother\n");
  const Ran one = Prepare(text);
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.err, HasSubstr("mtctl: note: one document: data.split divides by documents"));
  EXPECT_EQ(Prepare(text, {"--overwrite", "--separator", "%"}).err, "");
}

}  // namespace
}  // namespace mt::client
