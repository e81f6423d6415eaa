// What a user sees: the order of several texts, and nothing that controls a terminal; and the flags
// that mtctl hands on.
#include "worker/decode/text_printer.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "worker/decode/generate_flags.h"

namespace mt::decode {
namespace {

class TextPrinterTest : public testing::Test {
 protected:
  const std::string& Said() const { return said_; }

  const TextSink out_ = [this](std::string_view text) -> Status {
    said_ += text;
    ++pieces_;
    return OkStatus();
  };
  std::string said_;
  int pieces_ = 0;
};

TEST_F(TextPrinterTest, TheFirstComesAtOnceAndOthersInTheirTurn) {
  TextPrinter printer(out_, {"A", "B"}, 2, /*raw=*/false);
  printer.Add(0, 0, "1", false);
  EXPECT_EQ(Said(), "== prompt 1, sample 1\nA1");
  EXPECT_EQ(pieces_, 1);
  printer.Add(1, 1, "late", true);
  printer.Add(0, 1, "2", false);
  printer.Add(0, 0, "1", true);
  EXPECT_EQ(Said(), "== prompt 1, sample 1\nA11\n== prompt 1, sample 2\nA2");
  printer.Add(0, 1, "2", true);
  printer.Add(1, 0, "", true);
  EXPECT_EQ(Said(),
            "== prompt 1, sample 1\nA11\n== prompt 1, sample 2\nA22\n== prompt 2, sample 1\nB\n"
            "== prompt 2, sample 2\nBlate\n");
}

TEST_F(TextPrinterTest, OneHasNoHeading) {
  TextPrinter printer(out_, {"A"}, 1, /*raw=*/false);
  printer.Add(0, 0, "x", false);
  printer.Finish();  // interrupted
  EXPECT_EQ(Said(), "Ax\n");
}

TEST_F(TextPrinterTest, ControlCharactersAreWrittenOut) {
  TextPrinter printer(out_, {"\x1b[2J"}, 1, /*raw=*/false);
  printer.Add(0, 0, "a\x07\xFF\n\r", true);
  EXPECT_EQ(Said(), "\\x1b[2Ja\\x07\\xff\n\\x0d\n");
}

TEST_F(TextPrinterTest, RawIsAsItCame) {
  TextPrinter printer(out_, {""}, 1, /*raw=*/true);
  printer.Add(0, 0, "\x1b\xFF", true);
  EXPECT_EQ(Said(), "\x1b\xFF\n");
}

TEST_F(TextPrinterTest, NothingIsWrittenAfterAnError) {
  int calls = 0;
  TextPrinter printer(
      [&](std::string_view) -> Status {
        ++calls;
        return base::DataLoss("full");
      },
      {"A"}, 1, /*raw=*/false);
  printer.Add(0, 0, "x", false);
  printer.Add(0, 0, "y", true);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(base::Message(printer.status()), "full");
}

// What is written is in the file at once.
TEST(TextSinkTest, AFileTakesEachPiece) {
  char* data = nullptr;
  size_t size = 0;
  std::FILE* const file = ::open_memstream(&data, &size);
  const TextSink sink = ToFile(file);
  EXPECT_TRUE(sink("a").ok());
  EXPECT_EQ(std::string(data, size), "a");
  EXPECT_TRUE(sink("b\n").ok());
  EXPECT_EQ(std::string(data, size), "ab\n");
  std::fclose(file);
  std::free(data);
  std::FILE* const full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  EXPECT_EQ(ToFile(full)("c").code(), absl::StatusCode::kDataLoss);
  std::fclose(full);
}

// mtctl's flags, made a command line, are read as they were.
TEST(GenerateFlagsTest, SurviveTheCommandLine) {
  GenerateFlags flags;
  flags.step = 7;
  flags.prompts = {"--stop", "", "[a,b]", "two\nlines = \"x\"", "-", "--", ""};
  flags.tokens = 0;
  flags.samples = 3;
  flags.temperature = 0.1 + 0.2;
  flags.top_k = 40;
  flags.top_p = 0.95;
  flags.repetition_penalty = 1.1;
  flags.stops = {"\n\n", "--", "--seed=3"};
  flags.seed = 99;
  flags.precision = "fp64";
  flags.threads = 2;
  flags.tokenizer = "null";
  flags.raw = flags.log_probabilities = true;
  std::vector<std::string> words = {"program"};
  for (std::string& word : ToArguments(flags)) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  GenerateFlags read;
  CLI::App app;
  AddGenerateFlags(&app, &read);
  app.parse(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(ToArguments(read), ToArguments(flags));
  EXPECT_EQ(read.prompts, flags.prompts);
  EXPECT_EQ(read.stops, flags.stops);
  EXPECT_EQ(read.temperature, flags.temperature);
  EXPECT_EQ(ToArguments(GenerateFlags()), std::vector<std::string>());
}

}  // namespace
}  // namespace mt::decode
