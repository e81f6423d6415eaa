// Text to data sets: the three document rules, order, EOD, progress, bad input; and the tokenizers.
#include "worker/data/prepare/prepare.h"

#include <gmock/gmock.h>

#include "tests/paths.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/shuffle.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() : tokenizer_(*MakeTokenizer({.type = "byte"})) {
    args_.output_prefix = dir_.Path("out/d");
    args_.tokenizer = tokenizer_.get();
  }

  void AddInput(const std::string& name, std::string_view text) {
    args_.inputs.push_back(dir_.Path(name));
    WriteText(args_.inputs.back(), text);
  }

  PrepareStats Run() {
    const auto stats = Prepare(args_);
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? *stats : PrepareStats{};
  }

  // Each document of the result as text; empty ones too.
  std::vector<std::string> Documents() {
    const auto data = IndexedDataset::Open(args_.output_prefix);
    EXPECT_TRUE(data.ok()) << data.status();
    std::vector<std::string> documents;
    for (int64_t d = 0; d < (*data)->num_documents(); ++d) {
      std::string& text = documents.emplace_back();
      for (int64_t i = (*data)->document_begin(d); i < (*data)->document_begin(d + 1); ++i) {
        std::vector<int32_t> tokens(static_cast<size_t>((*data)->length(i)));
        EXPECT_TRUE((*data)->Read(i, 0, 257, tokens).ok());
        text += *tokenizer_->Decode(tokens);
      }
    }
    return documents;
  }

  void ExpectRefused(absl::StatusCode code, const std::string& message) {
    const auto stats = Prepare(args_);
    EXPECT_EQ(stats.status().code(), code) << stats.status();
    EXPECT_THAT(base::Message(stats.status()), HasSubstr(message));
    if (std::filesystem::exists(dir_.Path("out"))) {
      EXPECT_TRUE(std::filesystem::is_empty(dir_.Path("out"))) << "nothing is left behind";
    }
  }

  TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
  PrepareArgs args_;
};

TEST_F(PrepareTest, WholeFilesAreDocuments) {
  AddInput("a", "one\r\n\xC3\xA9\n");
  AddInput("empty", "");
  AddInput("b", std::string_view("\0\xFF", 2));
  args_.append_eod = true;
  const PrepareStats stats = Run();
  EXPECT_EQ(stats.files, 3);
  EXPECT_EQ(stats.bytes, 10);
  EXPECT_EQ(stats.documents, 3);
  EXPECT_EQ(stats.empty_documents, 1);
  EXPECT_EQ(stats.tokens, 12);  // two EODs: an empty document gets none
  EXPECT_EQ(stats.token_type, TokenType::kU16);
  EXPECT_THAT(Documents(),
              ElementsAre("one\r\n\xC3\xA9\n<eod>", "", std::string("\0\xFF", 2) + "<eod>"));
}

TEST_F(PrepareTest, SeparatorLinesEndDocuments) {
  AddInput("a", "%\nfirst\nrecord %\n%\n%\n %\nsecond\n%\r\nlast");
  AddInput("b", "%%\n");
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  EXPECT_EQ(Run().empty_documents, 0);
  EXPECT_THAT(Documents(), ElementsAre("first\nrecord %\n", " %\nsecond\n", "last", "%%\n"));
}

TEST_F(PrepareTest, JsonLinesGiveTheTextUnderTheKey) {
  AddInput("a.jsonl",
           "{\"text\": \"a\\n\\u00e9\", \"id\": 1}\n\n  \n{\"id\": 2, \"text\": \"\"}\r\n"
           "{\"text\": \"end\"}");
  args_.rule = DocumentRule::kJsonLines;
  args_.jsonl_key = "text";
  EXPECT_EQ(Run().empty_documents, 1);
  EXPECT_THAT(Documents(), ElementsAre("a\n\xC3\xA9", "", "end"));
}

TEST_F(PrepareTest, BadJsonIsNamedByFileAndLine) {
  args_.rule = DocumentRule::kJsonLines;
  args_.jsonl_key = "text";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\": ", "invalid JSON"},          {"[1]", "not a JSON object"},
      {"{\"other\": \"x\"}", "no key 'text'"},  {"{\"text\": 5}", "'text' is a number"},
      {"{\"text\": \"\xFF\"}", "invalid JSON"},
  };
  for (const bool shuffle : {false, true}) {
    args_.shuffle_documents = shuffle;
    for (const auto& [line, message] : cases) {
      args_.inputs.clear();
      AddInput("bad.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n");
      ExpectRefused(absl::StatusCode::kInvalidArgument, "bad.jsonl:3: " + message);
    }
  }
}

TEST_F(PrepareTest, ShuffledDocumentsAreTheSameInTheStreamsOrder) {
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  std::vector<std::string> expected;
  for (int file = 0; file < 3; ++file) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      expected.push_back("document " + std::to_string(file * 40 + i) + "\n");
      text += expected.back() + "%\n";
    }
    AddInput("f" + std::to_string(file), text);
  }
  Run();
  EXPECT_EQ(Documents(), expected);

  args_.output_prefix = dir_.Path("out/shuffled");
  args_.shuffle_documents = true;
  args_.seed = 17;
  Run();
  std::vector<int64_t> order(expected.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  ShuffleStream(17).Shuffle(order);
  std::vector<std::string> shuffled;
  shuffled.reserve(order.size());
  for (const int64_t i : order) shuffled.push_back(expected[static_cast<size_t>(i)]);
  EXPECT_EQ(Documents(), shuffled);
}

TEST_F(PrepareTest, ReportsProgressUpToTheTotal) {
  AddInput("a", std::string(5 << 20, 'a'));
  AddInput("b", std::string(5 << 20, 'b'));
  std::vector<PrepareProgress> reports;
  args_.progress = [&](const PrepareProgress& progress) {
    reports.push_back(progress);
    return true;
  };
  Run();
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_GE(reports[0].bytes_done, 4 << 20);
  EXPECT_LT(reports[0].bytes_done, 6 << 20);
  for (const PrepareProgress& report : reports) EXPECT_EQ(report.bytes_total, 10 << 20);
  EXPECT_EQ(reports.back().bytes_done, 10 << 20);
  EXPECT_EQ(reports.back().documents, 2);
  EXPECT_EQ(reports.back().tokens, 10 << 20);
}

TEST_F(PrepareTest, FoldersAreAllTheirFilesByName) {
  std::filesystem::create_directories(dir_.Path("in/b/c"));
  WriteText(dir_.Path("in/z"), "3");
  WriteText(dir_.Path("in/a"), "1");
  WriteText(dir_.Path("in/b/c/x"), "2");
  WriteText(dir_.Path("in/.hidden"), "no");
  WriteText(dir_.Path("first"), "0");
  args_.inputs = {dir_.Path("first"), dir_.Path("in")};
  EXPECT_EQ(Run().files, 4);
  EXPECT_THAT(Documents(), ElementsAre("0", "1", "2", "3"));
  args_.inputs = {dir_.Path("out/none")};
  std::filesystem::create_directories(dir_.Path("out/none"));
  args_.output_prefix = dir_.Path("out2/d");
  EXPECT_THAT(base::Message(Prepare(args_).status()), HasSubstr("a folder without files"));
  // What a run writes would be the text of the next.
  args_.inputs = {dir_.Path("in")};
  args_.output_prefix = dir_.Path("in/b/d");
  EXPECT_THAT(base::Message(Prepare(args_).status()), HasSubstr("lies in the input folder"));
  args_.output_prefix = dir_.Path("in2/d");
  EXPECT_TRUE(Prepare(args_).ok());
}

TEST_F(PrepareTest, RefusesWhatCannotWork) {
  ExpectRefused(absl::StatusCode::kInvalidArgument, "no input files");
  args_.inputs = {dir_.Path("absent")};
  ExpectRefused(absl::StatusCode::kNotFound, "absent");
  args_.inputs = {"/dev/null"};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "not a regular file");
  args_.inputs = {"-", "-"};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "given twice");
  args_.inputs.clear();
  AddInput("empty", "");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "hold no text");
  args_.rule = DocumentRule::kSeparator;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "separator");
  args_.rule = DocumentRule::kJsonLines;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "key");
}

TEST_F(PrepareTest, KeepsExistingOutputUnlessToldOtherwise) {
  AddInput("a", "old");
  Run();
  WriteText(args_.inputs[0], "new");
  const auto again = Prepare(args_);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(base::Message(again.status()), HasSubstr("d.bin: exists already"));
  EXPECT_THAT(Documents(), ElementsAre("old"));
  args_.overwrite = true;
  Run();
  EXPECT_THAT(Documents(), ElementsAre("new"));
}

TEST(TokenizerTest, BytesGoThroughUntouched) {
  const auto tokenizer = *MakeTokenizer({.type = "byte"});
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->eod(), 256);
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->Encode(all, &ids).ok());
  ASSERT_EQ(ids.size(), 256U);
  for (int32_t c = 0; c < 256; ++c) EXPECT_EQ(ids[static_cast<size_t>(c)], c);
  EXPECT_EQ(*tokenizer->Decode(ids), all);
  EXPECT_EQ(*tokenizer->Decode(std::vector<int32_t>{104, 105, 256}), "hi<eod>");
  EXPECT_THAT(base::Message(tokenizer->Decode(std::vector<int32_t>{257}).status()),
              HasSubstr("token id 257 is outside the vocabulary of 257"));
}

TEST(TokenizerTest, NullReadsIds) {
  const auto tokenizer = *MakeTokenizer({.type = "null", .vocab_size = 100});
  EXPECT_EQ(tokenizer->eod(), 99);
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->Encode(" 5 17\n98\t0 ", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(5, 17, 98, 0));
  EXPECT_EQ(*tokenizer->Decode(ids), "5 17 98 0");
  for (const char* bad : {"x", "1.5", "100", "-1", "99999999999999999999"}) {
    std::vector<int32_t> none;
    EXPECT_FALSE(tokenizer->Encode(bad, &none).ok()) << bad;
    EXPECT_THAT(none, IsEmpty());
  }
}

TEST(TokenizerTest, OtherTypesAreRefused) {
  EXPECT_EQ(MakeTokenizer({.type = "bite"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(MakeTokenizer({.type = "null"}).ok());
}

TEST_F(PrepareTest, TheTokenizersFilesAreKeptBesideTheData) {
  const std::string golden = MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/";
  const TokenizerConfig config = {.type = "hf", .file = golden + "llama3.json"};
  const auto tokenizer = *MakeTokenizer(config);
  AddInput("a", "some text");
  args_.tokenizer = tokenizer.get();
  args_.tokenizer_files = config;
  Run();
  const auto kept = FindKeptTokenizer("hf", tokenizer->digest(), dir_.Path("out"));
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ((*MakeTokenizer(*kept))->digest(), (*ReadTokenizerRecord(args_.output_prefix))->digest);
}

}  // namespace
}  // namespace mt::data
