// What `mtctl data prepare` refuses, and how it says so; its line of progress; and the verbs that
// make data sets of others.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/output/prepare_line.h"
#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "worker/data/prepare/prepare.h"

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

TEST_F(PrepareTest, FormsThatAreNotRead) {
  const std::string xz = Write("a.txt",
                               "\xFD"
                               "7zXZ...");
  EXPECT_EQ(Refused(xz),
            "mtctl: " + xz + " is compressed (xz): unpack it first, with unxz -k " + xz + "\n");
  EXPECT_THAT(Refused(Write("a", "BZh91AY")), HasSubstr("(bzip2)"));
  EXPECT_THAT(Refused(Write("a", "PAR1...")), HasSubstr("is Parquet, which is not read"));
  EXPECT_THAT(Refused(xz, {"--jsonl-key", "text"}), HasSubstr("(xz)"));
  const Ran cut_off = Prepare(Write("b.gz", std::string("\x1F\x8B\x08\0\0", 5)));
  EXPECT_EQ(cut_off.code, kExitIo);
  EXPECT_THAT(cut_off.err, HasSubstr("b.gz: the gzip data is cut off near byte 5"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.bin"));
}

TEST_F(PrepareTest, LinesOfJsonWithoutAKey) {
  const std::string lines = Write("a.txt", "{\"id\": 3, \"body\": \"one\"}\n{\"body\": \"two\"}\n");
  EXPECT_EQ(Refused(lines), "mtctl: " + lines +
                                " holds lines of JSON, whose signs and keys would be trained on: "
                                "--jsonl-key body takes the text of each line; --allow-json takes "
                                "it as text\n");
  const std::string text = "{\"text\": \"" + std::string(5000, 'x') + "\"}\n";
  EXPECT_THAT(Refused(Write("long", text)), HasSubstr("--jsonl-key KEY takes"))
      << "what follows the part that was read may be the text";
  const auto advised = [&](const std::string& line) { return Refused(Write("c", line + "\n")); };
  EXPECT_THAT(advised(R"({"text": "long", "id": "a17 and more"})"), HasSubstr("key text takes"));
  EXPECT_THAT(advised(R"({"content": "x", "author": "someone"})"), HasSubstr("key content takes"));
  EXPECT_THAT(advised(R"({"text": 3, "id": "a17", "story": "a long one", "title": "one"})"),
              HasSubstr("key story takes"));
  EXPECT_THAT(advised(R"({"ids": [1, 2]})"), HasSubstr("key KEY takes"));
  EXPECT_THAT(Refused(lines, {"--separator", "%"}), HasSubstr("--jsonl-key body"));
  // With a key, and as it was asked for, it goes on.
  EXPECT_EQ(Prepare(lines, {"--jsonl-key", "body"}).code, 0);
  EXPECT_EQ(Prepare(lines, {"--overwrite", "--allow-json", "--allow-one-document"}).code, 0);
}

TEST_F(PrepareTest, JsonInOtherForms) {
  const auto refused = [&](const std::string& text) { return Refused(Write("c", text)); };
  for (const std::string before : {"\xEF\xBB\xBF", " \t", "\n\r\n", "{}\n"})
    EXPECT_THAT(refused(before + "{\"text\": \"one\"}\n"), HasSubstr("lines of JSON")) << before;
  EXPECT_THAT(refused(std::string(5000, '\n') + "{\"text\": \"one\"}"), HasSubstr("lines of JSON"));
  for (const char* object : {"{\n  \"text\": \"one\"\n}\n", "{\"text\":\n\"one\"}"})
    EXPECT_THAT(refused(object), HasSubstr("with jq -c . FILE > lines.jsonl"));
  for (const char* list : {"[{\"text\": \"one\"}]", "[\n  {\n    \"text\": \"one\",\n"})
    EXPECT_THAT(refused(list), HasSubstr("with jq -c '.[]' FILE > lines.jsonl"));
  for (const std::string list : {"[\"one\", \"two\"]\n", "[1, 2]\n[3, 4]\n", "[[1], [2]]"})
    EXPECT_THAT(refused(list), HasSubstr("give --jsonl-key text"));
  for (const char* item : {"\"one\", ", "12, ", "\"x, y\",\n  "}) {
    std::string list = "[";
    while (list.size() < 5000) list += item;
    EXPECT_THAT(refused(list + "0]"), HasSubstr("give --jsonl-key text"));
  }
  const std::string long_item = "[\"" + std::string(5000, 'x') + "\"]";
  EXPECT_THAT(refused(long_item), HasSubstr("--jsonl-key text"));
  EXPECT_THAT(refused(std::string(5000, '\n') + long_item), HasSubstr("--jsonl-key text"));
}

TEST_F(PrepareTest, TextThatBeginsLikeJson) {
  for (const std::string text :
       {"{braces} are text\n", "{\"quoted\" text}", "{}", "{{ template }}", "[1] A. Smith, 2001\n",
        "[1]\nA. Smith", "[Verse 1]\nla la", "[x](url)", "[]", "[\"Quoted,\" he said]", "\"a\"",
        "[1, 2 and more", "[", "{", "[\"", "{\"a\\"}) {
    const Ran ran = Prepare(Write("b", text), {"--overwrite", "--allow-one-document"});
    EXPECT_EQ(ran.code, 0) << text << ran.err;
  }
  const std::string cited = "[1, 2 and 3] say that " + std::string(5000, 'x');
  const std::string brackets = std::string(2000, '\n') + std::string(1 << 20, '[');
  for (const std::string& text : {cited, brackets})
    EXPECT_EQ(Prepare(Write("b", text), {"--overwrite", "--allow-one-document"}).code, 0);
}

TEST_F(PrepareTest, EveryInputIsLookedAt) {
  std::filesystem::create_directories(folder_ / "in");
  for (int i = 0; i < 1300; ++i) std::ofstream(folder_ / fmt::format("in/{:04}", i)) << "text\n";
  Write("in/1299", "{\"text\": \"one\"}\n");
  Write("in/1250", "{\n\"text\": \"one\"}\n");
  EXPECT_THAT(Refused(folder_ / "in"), HasSubstr("in/1250 holds JSON, whose"));
  EXPECT_EQ(Prepare(folder_ / "in", {"--allow-json"}).code, 0);
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

TEST_F(PrepareTest, OneDocumentIsRefused) {
  const std::string text = Write("a.txt", "a text\n%\nanother\n");
  EXPECT_EQ(Refused(text),
            "mtctl: " + text +
                ": all text is one document, which data.split divides by tokens alone: "
                "--separator TEXT ends a document at each line TEXT, --jsonl-key KEY "
                "takes one of each line of JSON, each --input file is one; "
                "--allow-one-document takes it as it is, for jobs with data.split_by: tokens\n");
  // Known only when all of it was read.
  EXPECT_THAT(Refused(text, {"--separator", "%%"}), HasSubstr("all text is one document"));
  EXPECT_THAT(Refused(Write("l", "{\"a\": \"x\"}\n{\"a\": \"\"}"), {"--jsonl-key", "a"}),
              HasSubstr("all text is one document"));
  const std::string folder = folder_ / "in";
  std::filesystem::create_directories(folder);
  Write("in/a", "one\n");
  Write("in/b", "");
  EXPECT_THAT(Refused(folder), HasSubstr("in/a: all text is one document"));
  Write("in/b", "two\n");
  EXPECT_EQ(Prepare(folder, {"--overwrite"}).err, "");
  const Ran one = Prepare(text, {"--overwrite", "--allow-one-document"});
  EXPECT_EQ(one.err, "");
  EXPECT_THAT(one.out, HasSubstr("1 documents"));
  EXPECT_EQ(Prepare(text, {"--overwrite", "--separator", "%"}).err, "");
}

TEST_F(PrepareTest, TheLineOfProgressFits) {
  data::PrepareProgress progress = {.bytes_done = 340'000'000,
                                    .bytes_total = 1'000'000'000,
                                    .bytes_before = 140'000'000,
                                    .tokens = 1'234'000'000};
  EXPECT_EQ(PrepareLine(progress, 2), " 34%  100.0 MB/s  1.23G tokens  ETA 7s");
  progress.shuffling = true;
  EXPECT_EQ(PrepareLine(progress, 2), "shuffle  34%  100.0 MB/s  ETA 7s");
  progress = {.bytes_done = 1 << 30, .tokens = 5000};
  EXPECT_EQ(PrepareLine(progress, 10), "1.0 GiB  107.4 MB/s  5.0k tokens");
  progress = {
      .bytes_done = int64_t{1} << 50, .bytes_total = (int64_t{1} << 62), .tokens = 1LL << 60};
  EXPECT_LE(PrepareLine(progress, 1e-9).size(), 60U);
  EXPECT_LE(PrepareLine(progress, 1e9).size(), 60U);
  EXPECT_EQ(PrepareLine({.bytes_total = 10}, 0), "  0%  0.0 MB/s  0 tokens  ETA -");
}

TEST_F(PrepareTest, DataSetsAreRearrangedAndChecked) {
  const std::string text = Write("a.txt", "a text\n%\nanother\n");
  ASSERT_EQ(Prepare(text, {"--separator", "%"}).code, 0);
  const std::string out = folder_ / "out";
  const std::string all = folder_ / "all";
  const Ran merged = Mtctl(nullptr, {"data", "merge", out, out, "--output", all});
  EXPECT_EQ(merged.out, all + ".{bin,idx}: 4 documents, 34 tokens (u16)\n");
  const Ran split = Mtctl(nullptr, {"data", "split", all, "--shares", "3,1", "--output", all});
  EXPECT_EQ(split.out, all + "_0.{bin,idx}: 3 documents, 25 tokens (u16)\n" + all +
                           "_1.{bin,idx}: 1 documents, 9 tokens (u16)\n");
  EXPECT_EQ(Mtctl(nullptr, {"data", "verify", all, "--vocab-size", "257"}).out,
            all + ": sound: 4 documents, 34 tokens (u16), largest id 256 of 257\n");
  const Ran bad = Mtctl(nullptr, {"data", "verify", all, "--vocab-size", "120"});
  EXPECT_EQ(bad.code, kExitIo);
  EXPECT_THAT(bad.err, HasSubstr("all.bin: token 4 has id 120, outside the vocabulary of 120"));
  const Ran seen =
      Mtctl(nullptr, {"data", "inspect", all, "--samples", "2", "--tokenizer", "byte"});
  EXPECT_THAT(seen.out, HasSubstr("lengths       min 8, mean 8.5, max 9\n"));
  EXPECT_THAT(seen.out,
              HasSubstr("                   8-15             4  " + std::string(40, '=')));
  EXPECT_THAT(seen.out, HasSubstr("document 2, 8 tokens:\n  a text"));
  const Ran imported =
      Mtctl(nullptr, {"data", "import", "--input", all + ".bin", "--output", folder_ / "i"});
  EXPECT_THAT(imported.out, HasSubstr("i.{bin,idx}: 1 documents, 34 tokens (u16)"));
}

}  // namespace
}  // namespace mt::client
