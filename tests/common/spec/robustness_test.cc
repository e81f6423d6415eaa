// Arbitrary text: whatever the bytes, there is an answer and no crash. Seeded, so that a failure
// repeats.
#include <random>

#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "tests/common/spec/job_text.h"
#include "tests/sanitized.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

constexpr int kTexts = kSanitized ? 500 : 2000;

// Parses and completes the text and, where that succeeds, calls the functions that use the job.
void Survive(std::string_view text, const std::vector<std::string>& overrides = {}) {
  v1::JobSpec job;
  const Faults faults = LoadJob(text, overrides, {}, &job);
  EXPECT_FALSE(ToJson(job).empty());
  std::string wire;
  EXPECT_TRUE(job.SerializeToString(&wire));
  if (!faults.empty()) {
    EXPECT_FALSE(ToStatus(faults).ok());
    return;
  }
  EXPECT_GE(TotalIterations(job), 1);
  EXPECT_GT(ModelFlopsPerStep(job), 0);
  EXPECT_GT(ParameterCount(job.model()), 0);
  EXPECT_GE(WarmupSamples(job), 0);
  EXPECT_EQ(FormatFaults(CompleteJob({}, &job)), "");
}

TEST(Robustness, RandomBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text(random() % 200, '\0');
    for (char& c : text) c = static_cast<char>(random());
    Survive(text);
  }
}

TEST(Robustness, RandomYamlLikeText) {
  constexpr std::string_view kPieces[] = {
      "name", "model", "data", ": ",   "\n",   "  ",       "- ",     "[",  "]",   "{",
      "}",    ",",     "\"",   "'",    "|",    ">",        "&a ",    "*a", "!",   "?",
      "#",    "\t",    "~",    "1e9",  "-5",   "layers",   "path",   "%",  "---", "...",
      "<<",   "0x",    "nan",  "true", "auto", "\xC3\xA9", "\\u0000"};
  std::mt19937 random(2);
  for (int i = 0; i < kTexts; ++i) {
    std::string text;
    const size_t length = random() % 40;
    for (size_t k = 0; k < length; ++k) text += kPieces[random() % std::size(kPieces)];
    Survive(text);
    Survive(kJob, {"model.layers=" + text, "data.path=" + text, text});
  }
}

TEST(Robustness, MutatedJobs) {
  std::mt19937 random(3);
  for (int i = 0; i < kTexts; ++i) {
    std::string text(kJob);
    for (unsigned k = 0; k <= random() % 4; ++k) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(' ' + random() % 95);
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
    }
    Survive(text);
  }
}

TEST(Robustness, ExtremeValuesInEveryField) {
  const std::vector<std::string> extremes = {"9223372036854775807",
                                             "-9223372036854775808",
                                             "99999999999999999999",
                                             "1e308",
                                             "-1e308",
                                             "1e-320",
                                             "0",
                                             "-1",
                                             "-0",
                                             "nan",
                                             ".inf",
                                             "\"\"",
                                             "[]",
                                             "{}",
                                             "[[]]",
                                             "{a: b}",
                                             "100%",
                                             "9e18d",
                                             "9223372036854775807TiB",
                                             "\"\\0\"",
                                             "\"\\uFFFF\"",
                                             std::string(5000, 'x'),
                                             std::string(400, '9'),
                                             "1,2,3,4,5",
                                             "0-0",
                                             "65535-65535"};
  for (const std::string path : {"name",
                                 "labels",
                                 "kind",
                                 "priority",
                                 "model",
                                 "model.preset",
                                 "model.layers",
                                 "model.hidden_size",
                                 "model.heads",
                                 "model.kv_heads",
                                 "model.head_dim",
                                 "model.ffn_size",
                                 "model.vocab_size",
                                 "model.vocab_divisible_by",
                                 "model.seq_length",
                                 "model.max_positions",
                                 "model.norm_eps",
                                 "model.init_std",
                                 "model.hidden_dropout",
                                 "data",
                                 "data.path",
                                 "data.split",
                                 "data.seed",
                                 "data.cache",
                                 "parallel.tensor",
                                 "parallel.data",
                                 "parallel.pipeline",
                                 "parallel.layout",
                                 "parallel.virtual_stages",
                                 "parallel.bucket_size",
                                 "training.train_iters",
                                 "training.train_samples",
                                 "training.train_tokens",
                                 "training.micro_batch_size",
                                 "training.global_batch_size",
                                 "training.batch_ramp",
                                 "training.eval.every_iters",
                                 "training.seed",
                                 "optimizer.lr",
                                 "optimizer.min_lr",
                                 "optimizer.warmup",
                                 "optimizer.decay_over",
                                 "optimizer.clip_grad",
                                 "checkpoint.directory",
                                 "checkpoint.every",
                                 "checkpoint.load",
                                 "placement.slots",
                                 "placement.threads_per_rank",
                                 "placement.ports",
                                 "placement.node_selector",
                                 "placement.exclusive",
                                 "training.exit_after",
                                 "training.exit_at_iter",
                                 "training.exit_interval",
                                 "resilience.deadline",
                                 "resilience.on_agent_exit",
                                 "telemetry.profile.ranks"}) {
    for (const std::string& extreme : extremes) Survive(kJob, {path + "=" + extreme});
  }
}

TEST(Robustness, LargestSizesTogetherDoNotOverflow) {
  Survive(kJob, {"model={layers: 16384, hidden_size: 1048576, heads: 65536, head_dim: 256, "
                 "ffn_size: 16777216, "
                 "vocab_size: 268435456, seq_length: 16777216}",
                 "parallel.data=65536", "training={micro_batch_size: 16384, train_iters: 1024}",
                 "optimizer.warmup=0"});
  Survive(kJob, {"training.train_iters=4294967296", "training.global_batch_size=1073741824"});
}

TEST(Robustness, DeepAndWideText) {
  Survive("");
  for (const char* piece : {"[", "{", "{a: ", "- ", "? ", "a:\n ",
                            "[[],"
                            "\"",
                            "!", "&", "%", "#", "\n", "| ", "a: b: "}) {
    std::string text;
    while (text.size() < 100'000) text += piece;
    Survive(text);
  }
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  Survive(nested);
  std::string path = "a";
  for (int i = 0; i < 1000; ++i) path += ".a";
  Survive(kJob, {path + "=1"});
  Survive(std::string(kMaxTextBytes, 'a'));
  Survive("name: " + std::string(kMaxTextBytes - 10, 'a'));
  Survive(std::string("\xEF\xBB\xBFname: bom"));
  Survive(std::string_view("name: a\0b", 9));
}

}  // namespace
}  // namespace mt::spec
