// Documents that are cut have the ids of the whole: by each tokenizer alone, and through a whole
// conversion; and errors name their place in the file, not in the part.
#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/tokenizer/golden_files.h"
#include "tests/worker/data/tokenizer/random_text.h"
#include "worker/data/prepare/batch_encoder.h"
#include "worker/data/prepare/document_cut.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/gpt2_files.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> Gpt2() {
  return *MakeTokenizer({.type = "gpt2_bpe",
                         .vocab = GoldenPath("gpt2_vocab.json"),
                         .merges = GoldenPath("gpt2_merges.txt")});
}
std::unique_ptr<Tokenizer> Llama3() {
  return *MakeTokenizer({.type = "hf", .file = GoldenPath("llama3.json")});
}

// GPT-2's vocabulary with other patterns, and tokens that lie where text would be cut.
std::unique_ptr<Tokenizer> Odd(const std::vector<std::string_view>& patterns) {
  BpeParts parts = *ParseGpt2Files(Golden("gpt2_vocab.json"), Golden("gpt2_merges.txt"));
  parts.name = "hf";
  parts.patterns.assign(patterns.begin(), patterns.end());
  parts.named.clear();
  for (const char* text :
       {"<|x|>", "  ", "   ", "a b", "12 ", "word\nB", ".\n", "\n(", " a", "d 6"})
    parts.named.push_back({.text = text, .id = static_cast<int32_t>(900 + parts.named.size())});
  return *MakeBpeTokenizer(std::move(parts));
}

// Tokens that take white space or look at their neighbours, in both passes.
std::unique_ptr<Tokenizer> Taking(std::string_view pattern, bool nfc = false) {
  BpeParts parts = *ParseGpt2Files(Golden("gpt2_vocab.json"), Golden("gpt2_merges.txt"));
  parts.name = "hf";
  parts.patterns = {std::string(pattern)};
  parts.named = {{.text = "word", .id = 900, .rstrip = true},
                 {.text = "(", .id = 901, .lstrip = true},
                 {.text = "12", .id = 902, .single_word = true, .normalized = true},
                 {.text = "...", .id = 903, .lstrip = true, .rstrip = true},
                 {.text = "B", .id = 904, .single_word = true, .rstrip = true, .normalized = true},
                 {.text = "_", .id = 905, .single_word = true, .lstrip = true, .normalized = true},
                 {.text = "'S", .id = 906, .lstrip = true, .rstrip = true, .normalized = true},
                 {.text = "\n", .id = 907, .lstrip = true},
                 {.text = " a", .id = 908, .rstrip = true, .normalized = true}};
  parts.nfc = nfc;
  return *MakeBpeTokenizer(std::move(parts));
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.Encode(text, &ids).ok());
  return ids;
}

// Parts of any size, each cut where LastCut says; returns how often it was cut.
int ExpectIdsOfTheWhole(const Tokenizer& tokenizer, std::string_view text, std::mt19937* random) {
  const Cuts cuts = tokenizer.cuts();
  std::vector<int32_t> ids;
  int times = 0;
  for (std::string_view left = text; !left.empty();) {
    size_t size = std::min<size_t>(left.size(), 1 + (*random)() % 40);
    while (size < left.size() && LastCut(left.substr(0, size), cuts) == 0) ++size;
    const size_t end = size < left.size() ? LastCut(left.substr(0, size), cuts) : size;
    EXPECT_TRUE(tokenizer.Encode(left.substr(0, end), &ids).ok());
    left.remove_prefix(end);
    ++times;
  }
  EXPECT_TRUE(ids == Ids(tokenizer, text)) << testing::PrintToString(text);
  return times - 1;
}

TEST(CutDocumentsTest, PartsHaveTheIdsOfTheWhole) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(Gpt2());
  tokenizers.push_back(Llama3());
  tokenizers.push_back(Odd({kGpt2Pattern}));
  tokenizers.push_back(Odd({kQwen2Pattern}));
  tokenizers.push_back(Odd({kDigitsPattern, kGpt2Pattern}));
  tokenizers.push_back(Odd({kDigitPattern, kLlama3Pattern}));
  tokenizers.push_back(Odd({kLlama3Pattern, kGpt2Pattern}));
  tokenizers.push_back(Taking(kGpt2Pattern));
  tokenizers.push_back(Taking(kLlama3Pattern));
  tokenizers.push_back(Taking(kGpt2Pattern, /*nfc=*/true));
  tokenizers.push_back(Taking(kQwen2Pattern, /*nfc=*/true));
  std::mt19937 random(7);
  for (const auto& tokenizer : tokenizers) {
    EXPECT_EQ(tokenizer->cuts().rule, CutRule::kAfterWord);
    int cuts = 0;
    RandomText texts(5);
    for (int i = 0; i < 1000; ++i)
      cuts += ExpectIdsOfTheWhole(*tokenizer, texts.Make(60, /*invalid=*/i % 2 == 0), &random);
    EXPECT_GT(cuts, 300);
  }
  EXPECT_GT(ExpectIdsOfTheWhole(*tokenizers[1], Golden("text.txt"), &random), 10);
}

// Of other patterns it is not known where their pieces end.
TEST(CutDocumentsTest, OtherPatternsAreNotCut) {
  EXPECT_EQ(Odd({R"(\S+ \S+|\s+)"})->cuts().rule, CutRule::kNowhere);
  EXPECT_EQ(Odd({R"(\S+ \S+)", kGpt2Pattern})->cuts().rule, CutRule::kNowhere);
  EXPECT_EQ(Odd({kDigitPattern})->cuts().rule, CutRule::kNowhere);
  EXPECT_EQ(Odd({})->cuts().rule, CutRule::kNowhere);
}

// A cut would hide the letter that such a token may not stand beside.
TEST(CutDocumentsTest, TokensThatACutBlindsAreNotCut) {
  for (const char* text : {" x", "x\n"}) {
    BpeParts parts = *ParseGpt2Files(Golden("gpt2_vocab.json"), Golden("gpt2_merges.txt"));
    parts.named = {{.text = text, .id = 900, .single_word = true}};
    EXPECT_EQ((*MakeBpeTokenizer(std::move(parts)))->cuts().rule, CutRule::kNowhere) << text;
  }
}

class CutFilesTest : public ::testing::Test {
 protected:
  CutFilesTest() {
    args_.output_prefix = dir_.Path("out");
    args_.inputs = {dir_.Path("text")};
    args_.batch_bytes = 64;
    args_.most_document_bytes = 4096;
  }
  std::string Refused(const Tokenizer& tokenizer, std::string_view text) {
    WriteText(args_.inputs[0], text);
    args_.tokenizer = &tokenizer;
    const auto stats = Prepare(args_);
    EXPECT_TRUE(absl::IsInvalidArgument(stats.status())) << stats.status();
    EXPECT_FALSE(base::Exists(dir_.Path("out.bin")));
    return base::Message(stats.status());
  }

  TempDir dir_;
  PrepareArgs args_;
};

// One document far beyond what may be seen whole: as a text, and as a line of JSON.
TEST_F(CutFilesTest, LongDocumentsAreThoseOfTheTokenizerAlone) {
  std::string text, line = "{\"text\": \"";
  for (int i = 0; i < 3000; ++i) {
    text += "word " + std::to_string(i * 7919) + (i % 5 == 0 ? ".\n" : ", isn't it? ");
    if (i % 100 == 0) text += "\xE4\xB8\xAD\xE6\x96\x87\n";
  }
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  for (const auto& tokenizer : {Gpt2(), Llama3(), Odd({kDigitsPattern, kGpt2Pattern})}) {
    args_.tokenizer = tokenizer.get();
    const std::vector<int32_t> ids = Ids(*tokenizer, text);
    std::string expected;
    ASSERT_TRUE(AppendTokens(ids, TokenType::kU16, &expected).ok());
    for (const bool json : {false, true}) {
      WriteText(args_.inputs[0], json ? line + "\"}" : text);
      args_.rule = json ? DocumentRule::kJsonLines : DocumentRule::kWholeFile;
      args_.jsonl_key = json ? "text" : "";
      for (const int threads : {1, 2, 4}) {
        args_.threads = threads;
        args_.overwrite = true;
        const auto stats = Prepare(args_);
        ASSERT_TRUE(stats.ok()) << stats.status();
        EXPECT_EQ(stats->documents, 1);
        EXPECT_TRUE(ReadText(dir_.Path("out.bin")) == expected) << threads << " threads";
      }
    }
  }
}

TEST_F(CutFilesTest, ErrorsNameTheirPlaceInTheFile) {
  const auto null = *MakeTokenizer({.type = "null", .vocab_size = 100});
  std::string ids;
  for (int i = 0; i < 500; ++i) ids += i % 10 == 9 ? "17\n" : "17 ";
  EXPECT_THAT(Refused(*null, ids + "x 5\n"), HasSubstr("text:1: at offset 1500: 'x' is no token"));
  EXPECT_THAT(Refused(*null, ids + "100"), HasSubstr("at offset 1500: token id 100 is outside"));
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  EXPECT_THAT(Refused(*null, ids + "%\n5 x\n"), HasSubstr("text:52: at offset 1504: 'x' is no"));
  args_.rule = DocumentRule::kJsonLines;
  args_.jsonl_key = "ids";
  std::ranges::replace(ids, '\n', ' ');
  EXPECT_THAT(Refused(*null, "{\"ids\": \"\"}\n{\"ids\": \"" + ids + "x\"}\n"),
              HasSubstr("text:2: ids: at offset 1500: 'x' is no token"));
  args_.batch_bytes = 1 << 20;
  EXPECT_THAT(Refused(*null, "{\"ids\": \"\"}\n{\"ids\": \"5 x\"}\n"),
              HasSubstr("text:2: ids: at offset 2: 'x' is no token"));
}

TEST_F(CutFilesTest, APieceThatIsTooLongIsNamedByItsPlaceInTheFile) {
  args_.batch_bytes = 1 << 20;
  args_.most_document_bytes = 64 << 20;
  std::string words;
  while (words.size() < (3U << 20)) words += "word ";
  EXPECT_THAT(Refused(*Llama3(), words + std::string(kMaxPieceBytes + 5, 'x') + " end"),
              HasSubstr(fmt::format("text:1: at offset {}: the piece of text has {} bytes",
                                    words.size() - 1, kMaxPieceBytes + 6)));
}

// Of the byte tokenizer's name and ids, but that it can encode nothing.
class SpentTokenizer final : public Tokenizer {
 public:
  explicit SpentTokenizer(const Tokenizer& of) : of_(of) {}
  std::string_view name() const override { return of_.name(); }
  int64_t vocab_size() const override { return of_.vocab_size(); }
  int32_t eod() const override { return of_.eod(); }
  Cuts cuts() const override { return of_.cuts(); }
  Status Encode(std::string_view /*text*/, std::vector<int32_t>* /*ids*/) const override {
    return base::DataLoss("encoded again");
  }
  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    return of_.Decode(ids);
  }

 private:
  const Tokenizer& of_;
};

// What was encoded before it was refused is published by the same command with its consent.
TEST_F(CutFilesTest, ConsentToOneDocumentPublishesWhatIsKept) {
  const auto bytes = *MakeTokenizer({.type = "byte"});
  const SpentTokenizer spent(*bytes);
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  for (const bool shuffled : {false, true}) {
    args_.shuffle_documents = shuffled;
    args_.refuse_one_document = true;
    args_.overwrite = true;
    EXPECT_THAT(Refused(*bytes, "one text\n"), HasSubstr("; its tokens are kept"));
    args_.tokenizer = &spent;
    EXPECT_THAT(base::Message(Prepare(args_).status()), HasSubstr("; its tokens are kept"));
    args_.refuse_one_document = false;
    const auto stats = Prepare(args_);
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_TRUE(stats->resumed);
    EXPECT_EQ(stats->documents, 1);
    EXPECT_EQ(stats->tokens, 9);
    EXPECT_THAT(dir_.Files(),
                testing::ElementsAre("out.bin", "out.idx", "out.tokenizer.json", "text"));
    std::filesystem::remove(dir_.Path("out.bin"));
  }
}

// Once its documents are being shuffled, one was asked for: a run that goes on without saying so
// again neither refuses it nor takes what is shuffled for what is encoded.
TEST_F(CutFilesTest, ConsentHoldsForTheShuffleThatItBegan) {
  const auto bytes = *MakeTokenizer({.type = "byte"});
  std::string text, expected;
  for (int i = 0; i < 1 << 18; ++i) text += std::to_string(i);
  WriteText(args_.inputs[0], text + "\n%\n");
  ASSERT_TRUE(AppendTokens(Ids(*bytes, text + "\n"), TokenType::kU16, &expected).ok());
  args_.tokenizer = bytes.get();
  args_.batch_bytes = 1 << 20;
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  args_.shuffle_documents = true;
  args_.progress = [](const PrepareProgress& progress) { return !progress.shuffling; };
  EXPECT_EQ(Prepare(args_).status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(base::Exists(dir_.Path("out.bin.reordered.partial")));
  args_.progress = {};
  args_.refuse_one_document = true;
  const auto stats = Prepare(args_);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_TRUE(stats->resumed);
  EXPECT_EQ(stats->documents, 1);
  EXPECT_TRUE(ReadText(dir_.Path("out.bin")) == expected);
}

// Who takes the advice instead is not held to the command that was refused.
TEST_F(CutFilesTest, AnotherCommandBeginsAnewWhereConsentIsAwaited) {
  const auto bytes = *MakeTokenizer({.type = "byte"});
  args_.refuse_one_document = true;
  EXPECT_THAT(Refused(*bytes, "one\n%\ntwo\n"), HasSubstr("; its tokens are kept"));
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  const auto stats = Prepare(args_);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_FALSE(stats->resumed);
  EXPECT_EQ(stats->documents, 2);
  EXPECT_THAT(dir_.Files(), testing::SizeIs(4));
}

TEST_F(CutFilesTest, OneDocumentIsRefusedWhereThatIsAskedFor) {
  const auto bytes = *MakeTokenizer({.type = "byte"});
  args_.refuse_one_document = true;
  args_.rule = DocumentRule::kSeparator;
  args_.separator = "%";
  EXPECT_THAT(Refused(*bytes, "one\n"), HasSubstr("all text is one document"));
  EXPECT_THAT(Refused(*bytes, "one\n"), HasSubstr("; its tokens are kept"));
  // Empty documents beside it can give nothing to a split either.
  args_.inputs.push_back(dir_.Path("empty"));
  WriteText(args_.inputs[1], "");
  args_.rule = DocumentRule::kWholeFile;
  EXPECT_THAT(Refused(*bytes, "one\n"), HasSubstr("--allow-one-document takes it as it is"));
  WriteText(args_.inputs[1], "two");
  EXPECT_TRUE(Prepare(args_).ok());
}

}  // namespace
}  // namespace mt::data
