// Conversions that are killed, cancelled or run out of disk at many points go on to the same bytes,
// for any number of threads; and what is left in the way is said.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/sanitized.h"
#include "tests/worker/data/prepare/packed.h"
#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/tokenizer/golden_files.h"
#include "worker/data/prepare/partial_dataset.h"
#include "worker/data/prepare/prepare.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() : tokenizer_(*MakeTokenizer({.type = "byte"})) {
    args_.output_prefix = dir_.Path("out/d");
    args_.tokenizer = tokenizer_.get();
    args_.append_eod = true;
    args_.rule = DocumentRule::kSeparator;
    args_.separator = "%";
    args_.batch_bytes = 1 << 10;
    args_.record_every_bytes = 8 << 10;
    std::mt19937 random(3);
    std::string text;
    for (int i = 0; i < 400; ++i) {
      for (size_t words = random() % 30 + (i == 200 ? 20000 : 0); words > 0; --words)
        text += "word" + std::to_string(random() % 1000) + (random() % 8 == 0 ? "\n" : " ");
      text += "\n%\n";
    }
    Add("a", text.substr(0, 1000));
    Add("b", text);
    Add("c.gz", Gzip(text.substr(5000, 40000)));
    Add("d", "");
    Add("e.zst", Zstd(text.substr(0, 60000)));
  }

  void Add(const std::string& name, std::string_view text) {
    args_.inputs.push_back(dir_.Path(name));
    WriteText(args_.inputs.back(), text);
  }

  // Tokens of another kind; "hf" merges within pieces, and long documents are cut between them.
  void Use(const TokenizerConfig& config) {
    tokenizer_ = *MakeTokenizer(config);
    args_.tokenizer = tokenizer_.get();
  }

  // What a run that nothing disturbs makes, under another name.
  std::pair<std::string, std::string> Undisturbed() {
    PrepareArgs args = args_;
    args.output_prefix = dir_.Path("undisturbed/d");
    args.overwrite = true;
    EXPECT_TRUE(Prepare(args).ok());
    return {ReadText(args.output_prefix + ".bin"), ReadText(args.output_prefix + ".idx")};
  }
  void ExpectMade(const std::pair<std::string, std::string>& expected) {
    EXPECT_TRUE(ReadText(args_.output_prefix + ".bin") == expected.first);
    EXPECT_TRUE(ReadText(args_.output_prefix + ".idx") == expected.second);
    for (const auto& entry : std::filesystem::directory_iterator(dir_.Path("out"))) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name == "d.bin" || name == "d.idx" || name == "d.tokenizer.json") << name;
    }
  }
  void Clear() { std::filesystem::remove_all(dir_.Path("out")); }

  TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
  PrepareArgs args_;
};

TEST_F(ResumeTest, AnyNumberOfThreadsGivesTheSameBytes) {
  for (const int kind : {0, 1, 2}) {
    const bool shuffle = kind == 1;
    if (kind == 2) Use({.type = "hf", .file = GoldenPath("llama3.json")});
    args_.shuffle_documents = shuffle;
    args_.threads = 1;
    args_.batch_bytes = 1 << 10;
    const auto expected = Undisturbed();
    EXPECT_GT(expected.first.size(), kind == 2 ? 60000U : 400000U);
    for (const int threads : {2, 4}) {
      for (const size_t batch : {size_t{100}, size_t{4096}, size_t{1} << 20}) {
        args_.threads = threads;
        args_.batch_bytes = batch;
        EXPECT_TRUE(Undisturbed() == expected) << threads << " threads, batches of " << batch;
      }
    }
  }
}

TEST_F(ResumeTest, CancelledRunsGoOn) {
  for (const bool shuffle : {false, true}) {
    args_.shuffle_documents = shuffle;
    args_.most_listed_documents = shuffle ? 10 : 1000;
    Clear();
    const auto expected = Undisturbed();
    // Small files are reported at the end only: cancel there, before the pair is moved into place.
    args_.progress = [&](const PrepareProgress& progress) { return progress.shuffling; };
    const auto cancelled = Prepare(args_);
    EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(base::Message(cancelled.status()), HasSubstr("the same command goes on"));
    EXPECT_FALSE(base::Exists(args_.output_prefix + ".bin"));
    args_.progress = {};
    const auto stats = Prepare(args_);
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_TRUE(stats->resumed);
    EXPECT_EQ(stats->tokens, std::ssize(expected.first) / 2);
    ExpectMade(expected);
  }
}

// In a process of its own, which has one thread when it forks. Killed from outside once it has
// written this many bytes; it may have ended before that is seen.
void RunAndBeKilled(const PrepareArgs& args, uintmax_t bytes) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0) << "fork";
  if (child == 0) {
    const bool made = Prepare(args).ok();
    ::_exit(made ? 0 : 1);
  }
  int state = 0;
  std::error_code none_yet;
  while (::waitpid(child, &state, WNOHANG) == 0) {
    const auto written = std::filesystem::file_size(args.output_prefix + ".bin.partial", none_yet);
    if (none_yet || written < bytes) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, &state, 0);
    return;
  }
}

// Killed by itself, as it reports what it has done: before the pair is moved into place.
void RunAndKillItself(PrepareArgs args) {
  args.progress = [](const PrepareProgress&) { return ::raise(SIGKILL) == 0; };
  const pid_t child = ::fork();
  ASSERT_GE(child, 0) << "fork";
  if (child == 0) {
    const bool made = Prepare(args).ok();
    ::_exit(made ? 0 : 1);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  EXPECT_TRUE(WIFSIGNALED(state));
}

TEST_F(ResumeTest, KilledRunsGoOnFromManyPoints) {
  if (kSanitized) GTEST_SKIP() << "a child of a sanitized process may not start threads";
  const int kills = std::getenv("MT_LONG_TESTS") == nullptr ? 6 : 400;
  std::mt19937 random(11);
  int resumed = 0;
  for (const int kind : {0, 1, 2}) {
    if (kind == 2) Use({.type = "hf", .file = GoldenPath("llama3.json")});
    args_.shuffle_documents = kind == 1;
    const auto expected = Undisturbed();
    for (int kill = 0; kill < kills; ++kill) {
      Clear();
      if (kill == 0) RunAndKillItself(args_);
      for (int times = 0; times < 3 && kill > 0; ++times) {
        args_.threads = 1 + static_cast<int>(random() % 4);
        RunAndBeKilled(args_, random() % expected.first.size());
      }
      if (base::Exists(args_.output_prefix + ".idx")) args_.overwrite = true;
      const auto stats = Prepare(args_);
      args_.overwrite = false;
      ASSERT_TRUE(stats.ok()) << stats.status();
      resumed += stats->resumed ? 1 : 0;
      ExpectMade(expected);
    }
  }
  EXPECT_GE(resumed, 3) << "those that killed themselves, at least";
}

// The record of each moment at which the pair is moved into place.
TEST_F(ResumeTest, KilledWhilePublishing) {
  const auto expected = Undisturbed();
  for (const bool bin_moved : {false, true}) {
    for (const bool idx_moved : {false, true}) {
      if (idx_moved && !bin_moved) continue;
      Clear();
      std::filesystem::create_directories(dir_.Path("out"));
      const std::string& prefix = args_.output_prefix;
      args_.progress = [](const PrepareProgress&) { return false; };
      EXPECT_FALSE(Prepare(args_).ok());
      args_.progress = {};
      PrepareRecord record = *ParseRecord(ReadText(prefix + ".prepare.json"));
      record.phase = PrepareRecord::Phase::kPublish;
      WriteText(prefix + ".prepare.json", RecordText(record));
      WriteText(prefix + (idx_moved ? ".idx" : ".idx.partial"), expected.second);
      if (bin_moved) std::filesystem::rename(prefix + ".bin.partial", prefix + ".bin");
      ASSERT_TRUE(Prepare(args_).ok());
      ExpectMade(expected);
    }
  }
}

TEST_F(ResumeTest, AFullDiskIsOneErrorAndTheRunGoesOn) {
  const auto expected = Undisturbed();
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t room : {rlim_t{0}, rlim_t{3000}, rlim_t{200000}, rlim_t{400001}}) {
    Clear();
    const struct rlimit limit = {.rlim_cur = room, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto stats = Prepare(args_);
    ::setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_FALSE(stats.ok());
    EXPECT_TRUE(absl::IsResourceExhausted(stats.status())) << stats.status();
    EXPECT_THAT(base::Message(stats.status()), HasSubstr("d.bin.partial at byte"));
    EXPECT_THAT(base::Message(stats.status()), HasSubstr("free space"));
    EXPECT_FALSE(base::Exists(args_.output_prefix + ".idx"));
    const auto again = Prepare(args_);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->resumed, room >= 3000);
    ExpectMade(expected);
  }
}

TEST_F(ResumeTest, OtherOptionsAndInputsAreRefused) {
  args_.progress = [](const PrepareProgress&) { return false; };
  EXPECT_FALSE(Prepare(args_).ok());
  args_.progress = {};
  const auto refused = [](const PrepareArgs& args) {
    const auto stats = Prepare(args);
    EXPECT_TRUE(absl::IsFailedPrecondition(stats.status())) << stats.status();
    EXPECT_THAT(base::Message(stats.status()), HasSubstr("--restart begins anew"));
    return base::Message(stats.status());
  };
  PrepareArgs other = args_;
  other.separator = "%%";
  EXPECT_THAT(refused(other),
              HasSubstr("had other options (tokenizer byte of 257 ids, separator "
                        "%, EOD 256; these are tokenizer byte of 257 ids, separator "
                        "%%, EOD 256)"));
  // Earlier versions had other tables of characters, and told of none.
  other = args_;
  const auto hf = *MakeTokenizer({.type = "hf", .file = GoldenPath("llama3.json")});
  other.tokenizer = hf.get();
  EXPECT_THAT(refused(other), HasSubstr("), Unicode 16.0.0, separator %, EOD"));
  other = args_;
  other.inputs.pop_back();
  EXPECT_THAT(refused(other), HasSubstr("had other inputs"));
  WriteText(args_.inputs[0], "changed");
  EXPECT_THAT(refused(args_), HasSubstr("changed since"));
  WriteText(args_.output_prefix + ".prepare.json", "{}");
  EXPECT_THAT(refused(args_), HasSubstr("no record of this version"));
  args_.restart = true;
  EXPECT_FALSE(Prepare(args_)->resumed);
  ExpectMade(Undisturbed());
}

TEST_F(ResumeTest, WhatTheRecordTellsOfMustBeThere) {
  args_.progress = [](const PrepareProgress&) { return false; };
  EXPECT_FALSE(Prepare(args_).ok());
  args_.progress = {};
  std::filesystem::resize_file(args_.output_prefix + ".bin.partial", 1000);
  const auto stats = Prepare(args_);
  EXPECT_THAT(base::Message(stats.status()), HasSubstr("1000 bytes, at least"));
  EXPECT_THAT(base::Message(stats.status()), HasSubstr("--restart"));
}

TEST_F(ResumeTest, OneProcessAtATime) {
  std::filesystem::create_directories(dir_.Path("out"));
  const auto held = PartialDataset::Open({.prefix = args_.output_prefix});
  ASSERT_TRUE(held.ok());
  EXPECT_THAT(base::Message(Prepare(args_).status()), HasSubstr("another process makes"));
}

// White space alone is no document to the null tokenizer, wherever it is cut.
TEST_F(ResumeTest, EodFollowsTokensOnly) {
  const auto null = *MakeTokenizer({.type = "null", .vocab_size = 100});
  args_.tokenizer = null.get();
  args_.rule = DocumentRule::kWholeFile;
  args_.batch_bytes = 16;
  args_.inputs.clear();
  Add("blank", std::string(100, ' '));
  Add("ids", "1 22 3" + std::string(100, ' ') + "44" + std::string(50, '\n'));
  const auto stats = Prepare(args_);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->documents, 2);
  EXPECT_EQ(stats->empty_documents, 1);
  EXPECT_EQ(stats->tokens, 5);
  EXPECT_EQ(ReadText(args_.output_prefix + ".bin"),
            std::string_view("\x01\0\x16\0\x03\0\x2C\0\x63\0", 10));
}

}  // namespace
}  // namespace mt::data
