// `mtctl explain schedule` and `mtctl explain memory`: whole command lines on job files.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;
using testing::Not;

class ExplainTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-explain-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/job.yaml";
    std::ofstream(path_)
        << "name: demo\n"
           "model: {layers: 4, hidden_size: 64, heads: 4, seq_length: 32}\n"
           "data: {path: [text_document], tokenizer: {type: byte}}\n"
           "parallel: {data: 1, pipeline: 2}\n"
           "training: {micro_batch_size: 4, global_batch_size: 8, train_iters: 9}\n"
           "optimizer: {lr: 1e-3, warmup: 4}\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Ran Explain(const std::string& what, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"explain", what, "-f", path_};
    args.insert(args.end(), more.begin(), more.end());
    return Mtctl(nullptr, args);
  }

  std::string folder_, path_;
};

TEST_F(ExplainTest, ScheduleIsDrawnWithItsIdleShares) {
  const Ran ran = Explain("schedule");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(
      ran.out,
      "1f1b: 2 stages of 1 chunk, 2 microbatches of 4 samples per step and replica; a chunk's "
      "forward takes 1 tick, its backward 2, a transfer none\n"
      "stage 0  |F0|F1|..|..|B0|B0|..|B1|B1|\n"
      "stage 1  |..|F0|B0|B0|F1|B1|B1|..|..|\n"
      "bubble 3 of 9 ticks (50.0 % over the work)\n"
      "slots 0: 2, 1: 1\n"
      "\n"
      "STAGE  SLOTS  IDLE    LAYERS\n"
      "0      2      33.3 %  embedding, layers 0-1\n"
      "1      1      33.3 %  layers 2-3, head\n");
}

// A job that reads a checkpoint has no steps, and its memory is that of what it reads.
TEST_F(ExplainTest, OfAJobThatReads) {
  const Ran refused = Explain("memory", {"--checkpoint-root", folder_});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("--checkpoint-root is for jobs that read a checkpoint"));
  std::ofstream(path_) << "{name: look, kind: generate, read: {checkpoint: default/demo}}\n";
  const Ran valid = Mtctl(nullptr, {"validate", "-f", path_});
  EXPECT_EQ(valid.code, 0) << valid.err;
  EXPECT_THAT(valid.err, HasSubstr("valid: kind generate, reads default/demo, 1 slot\n"));
  EXPECT_THAT(valid.out, HasSubstr("tokens: 64\n"));
  EXPECT_THAT(valid.out, Not(HasSubstr("training:")));
  const Ran schedule = Explain("schedule");
  EXPECT_EQ(schedule.code, 3);
  EXPECT_THAT(schedule.err, HasSubstr("kind generate makes no steps"));
  const Ran unknown = Explain("memory");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("--checkpoint-root"));
  const Ran nothing = Explain("memory", {"--checkpoint-root", folder_});
  EXPECT_EQ(nothing.code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("default/demo"));
}

TEST_F(ExplainTest, ScheduleOfAnotherLayoutAndStep) {
  const Ran ring =
      Explain("schedule", {"--set", "parallel.virtual_stages=2", "--microbatches", "4"});
  EXPECT_EQ(ring.code, 0) << ring.err;
  EXPECT_THAT(ring.out, HasSubstr("interleaved: 2 stages of 2 chunks, 4 microbatches of 4"));
  EXPECT_THAT(ring.out, HasSubstr("stage 0  |F0.0|F1.0|F0.1|"));
  EXPECT_THAT(ring.out, HasSubstr("embedding, layer 0; layer 2\n"));
  EXPECT_THAT(ring.out, HasSubstr("layer 1; layer 3, head\n"));
  // Recomputation adds a third tick to the backward pass.
  const Ran again = Explain("schedule", {"--set", "training.recompute.mode=full"});
  EXPECT_THAT(again.out, HasSubstr("its backward 3,"));
  EXPECT_THAT(again.out, HasSubstr("stage 1  |..|F0|B0|B0|B0|F1|B1|B1|B1|"));
  const Ran one = Explain("schedule", {"--set", "parallel.pipeline=1"});
  EXPECT_THAT(one.out, HasSubstr("stage 0  |F0|B0|B0|F1|B1|B1|\nbubble 0 of 6 ticks"));
}

TEST_F(ExplainTest, WideSchedulesAreCutToTheWidth) {
  const Ran ran = Explain("schedule", {"--microbatches", "40", "--width", "60"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\nticks 0 to 11\nstage 0  |F0 |F1 |"));
  std::istringstream lines(ran.out.substr(ran.out.find("ticks 0")));
  for (std::string line; std::getline(lines, line) && line.substr(0, 6) != "bubble";) {
    EXPECT_LE(line.size(), 60U) << line;
  }
}

TEST_F(ExplainTest, MemoryByStageAndKind) {
  const Ran ran = Explain("memory", {"--set", "parallel.data=2"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(
      ran.out,
      "RANK OF STAGE  PARAMETERS  WEIGHTS    GRADIENTS  OPTIMIZER   ACTIVATIONS  TOTAL\n"
      "0              129.0k      504.0 KiB  504.0 KiB  1008.0 KiB  1.1 MiB      3.0 MiB\n"
      "1              127.0k      496.0 KiB  496.0 KiB  992.0 KiB   1.1 MiB      3.0 MiB\n"
      "all 4 ranks    512.0k      2.0 MiB    2.0 MiB    3.9 MiB     4.3 MiB      12.1 MiB\n"
      "\n"
      "Parameters as stored, with padding; activations kept from forward to backward. A device of "
      "auto is "
      "counted as CPU slots.\n"
      "Not counted: scratch of a running action, workspaces, buffers of collectives, data.\n");
  EXPECT_THAT(Explain("memory", {"--set", "parallel.pipeline=1"}).out, HasSubstr("\nall 1 rank "));
  // A growing batch needs as many slots as its largest step.
  EXPECT_EQ(Explain("memory", {"--set", "training.batch_ramp=\"4,4,8\""}).out,
            Explain("memory").out);
  const Ran tree = Explain("memory", {"-o", "json"});
  EXPECT_EQ(tree.code, 0);
  EXPECT_THAT(tree.out, HasSubstr("\"weights\": 512000"));
  EXPECT_EQ(Explain("memory", {"--set", "parallel.pipeline=3"}).code, kExitInvalidInput);
}

// The rows of a rank of each stage and of all, and what is said of the column.
TEST_F(ExplainTest, TheCopyOfSavesBesideTrainingIsAColumn) {
  const Ran plain = Explain("memory", {"--set", "parallel.data=2"});
  const Ran ran =
      Explain("memory", {"--set", "parallel.data=2", "--set", "checkpoint.async_save=true"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("TOTAL     SAVE COPY\n"));
  // Weights and two moments of half the parameters: each replica saves its part.
  EXPECT_THAT(ran.out, HasSubstr("3.0 MiB   756.0 KiB\n"));
  EXPECT_THAT(ran.out, HasSubstr("3.0 MiB   744.0 KiB\n"));
  EXPECT_THAT(ran.out, HasSubstr("12.1 MiB  2.9 MiB\n"));
  EXPECT_THAT(ran.out, HasSubstr("is host memory, besides the total.\n"));
  EXPECT_THAT(plain.out, Not(HasSubstr("SAVE COPY")));
}

// Half of two norms' outputs of two layers, 4 x 32 tokens of 64 in fp32, for two microbatches.
TEST_F(ExplainTest, GatheredInputsOfTensorRanksAreAColumn) {
  const std::vector<std::string> tensor = {"--set", "parallel.tensor=2"};
  const Ran ran = Explain("memory", tensor);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("  TOTAL    GATHERED\n"));
  EXPECT_THAT(ran.out, testing::ContainsRegex("\n0 .*  128.0 KiB\n1 .*  64.0 KiB\n"));
  EXPECT_THAT(ran.out, HasSubstr("else gathered again in backward.\n"));
  std::vector<std::string> tree = tensor;
  tree.insert(tree.end(), {"-o", "json"});
  EXPECT_THAT(Explain("memory", tree).out, HasSubstr("\"gathered_inputs\": 131072"));
  EXPECT_THAT(ran.out, Not(HasSubstr("TENSOR SUMS"))) << "of GPUs alone";
  std::vector<std::string> selective = tensor;
  selective.insert(selective.end(), {"--set", "training.recompute.mode=selective"});
  EXPECT_THAT(Explain("memory", selective).out, Not(HasSubstr("GATHERED")));
  EXPECT_THAT(Explain("memory").out, Not(HasSubstr("GATHERED")));
}

TEST_F(ExplainTest, FaultsAreNamed) {
  const Ran group =
      Explain("schedule", {"--set", "parallel.virtual_stages=2", "--microbatches", "3"});
  EXPECT_EQ(group.code, kExitInvalidInput);
  EXPECT_THAT(group.err, HasSubstr("3 microbatches are not a multiple of the interleaved group 2; "
                                   "nearest: 2 or 4"));
  const Ran layers = Explain("schedule", {"--set", "parallel.pipeline=3"});
  EXPECT_EQ(layers.code, kExitInvalidInput);
  EXPECT_THAT(layers.err, HasSubstr("model.layers"));
  EXPECT_EQ(Explain("schedule", {"-o", "json"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(nullptr, {"explain", "schedule"}).code, kExitUsage);  // no file
  EXPECT_EQ(Explain("schedule", {"--microbatches", "0"}).code, kExitUsage);
  path_ = folder_ + "/none.yaml";
  EXPECT_THAT(Explain("schedule").err, HasSubstr("none.yaml"));
}

}  // namespace
}  // namespace mt::client
