// Loss curves on a GPU: those of the CPU, of any number of microbatches, and where it is promised
// the same bits again.
#include <cmath>

#include "tests/worker/train/gpu_rig.h"

namespace mt::train {
namespace {

// docs/design/numerics.md#what-is-promised: GPU against CPU over 20 steps.
double LossTolerance(const std::string& precision) { return precision == "fp32" ? 1e-4 : 2e-2; }
// Norms are of gradients that were rounded on the way; they are compared to see that none is lost.
double NormTolerance(const std::string& precision) { return precision == "fp32" ? 1e-3 : 0.1; }

struct CurveCase {
  const char* name;
  std::string_view model;
  const char* precision;
  std::vector<std::string> more;
};

constexpr char kGently[] = "optimizer.lr=3e-4";

void PrintTo(const CurveCase& c, std::ostream* out) { *out << c.name; }

class CpuCurveTest : public GpuTrainTest, public ::testing::WithParamInterface<CurveCase> {};

TEST_P(CpuCurveTest, IsTheGpus) {
  const CurveCase& c = GetParam();
  std::vector<std::string> fields = {std::string("training.precision=") + c.precision};
  // From 2^32, the default, fp16 would skip the first steps.
  if (fields[0].ends_with("fp16")) fields.emplace_back("training.loss_scale.initial=65536");
  fields = Joined(fields, c.more);
  const RankOutcome cpu = Run(Where::kCpu, c.model, fields);
  const RankOutcome gpu = Run(Where::kGpu, c.model, fields);
  ASSERT_EQ(gpu.seen.steps.size(), 20U);
  EXPECT_LT(gpu.seen.steps.back().loss(), 0.9 * gpu.seen.steps.front().loss()) << "it learns";
  ExpectSameCurve(gpu.seen.steps, cpu.seen.steps, LossTolerance(c.precision),
                  NormTolerance(c.precision));
  double worst = 0;
  for (size_t i = 0; i < 20; ++i) {
    worst = std::max(worst, std::abs(gpu.seen.steps[i].loss() / cpu.seen.steps[i].loss() - 1));
    EXPECT_EQ(gpu.seen.steps[i].skipped(), cpu.seen.steps[i].skipped());
    // By the same function; a GPU's cosine may differ in its last bit.
    EXPECT_NEAR(gpu.seen.steps[i].learning_rate(), cpu.seen.steps[i].learning_rate(), 1e-15);
  }
  std::printf("%s: largest relative difference of the loss %.2e\n", c.name, worst);
}

INSTANTIATE_TEST_SUITE_P(
    Models, CpuCurveTest,
    ::testing::Values(
        CurveCase{"gpt_fp32", kGptLike, "fp32", {}}, CurveCase{"gpt_bf16", kGptLike, "bf16", {}},
        CurveCase{"gpt_fp16", kGptLike, "fp16", {}},
        CurveCase{"llama_fp32", kLlamaLike, "fp32", {}},
        CurveCase{"llama_bf16", kLlamaLike, "bf16", {}},
        CurveCase{"llama_fp16", kLlamaLike, "fp16", {}},
        // Masks of attention's dropout are the CPU's, bit for bit, so the curve is.
        CurveCase{"attention_dropout_fp32", kGptLike, "fp32", {"model.attention_dropout=0.1"}},
        CurveCase{"attention_dropout_bf16", kLlamaLike, "bf16", {"model.attention_dropout=0.1"}},
        // Positions that restart at documents: a table's, and a rotation's behind QK norm.
        CurveCase{"restarting_fp32", kGptLike, "fp32", {"data.reset_positions=true"}},
        CurveCase{"restarting_bf16", kGptLike, "bf16", {"data.reset_positions=true"}},
        CurveCase{"restarting_rope_fp32",
                  kLlamaLike,
                  "fp32",
                  {"data.reset_positions=true", "model.qk_norm=true"}},
        CurveCase{"restarting_rope_bf16", kLlamaLike, "bf16", {"data.reset_positions=true"}},
        // A head of 24 and a vocabulary that is no multiple of 8.
        CurveCase{"odd_sizes_fp32",
                  kGptLike,
                  "fp32",
                  {"model.hidden_size=96", "model.vocab_divisible_by=1"}},
        CurveCase{"odd_sizes_bf16",
                  kGptLike,
                  "bf16",
                  {"model.hidden_size=96", "model.vocab_divisible_by=1"}},
        // Heads that a GPU stores larger than the CPU does. (At 1e-3 the gradients of such wide
        // heads jump tenfold and blow up any rounding, on the CPU alone too.)
        CurveCase{"head_100_fp32", kHeads100, "fp32", {kGently}},
        CurveCase{"head_100_bf16", kHeads100, "bf16", {kGently}},
        CurveCase{"head_100_qk_norm_bf16", kHeads100, "bf16", {kGently, "model.qk_norm=true"}},
        CurveCase{"head_119_qk_norm_fp32", kHeads119, "fp32", {kGently, "model.qk_norm=true"}},
        CurveCase{"head_119_bf16", kHeads119, "bf16", {kGently}}),
    [](const auto& test) { return test.param.name; });

class GpuCurveTest : public GpuTrainTest {};

// The own kernels would have planned nothing, as under fp32. (tests/kernels/cuda,
// PaddedHeadsAreCudnns: a plan that is looked for is found.)
TEST_F(GpuCurveTest, PaddedHeadsArePlannedForCudnn) {
  for (const std::string_view model : {kHeads100, kHeads119}) {
    const auto plans = [&](const char* precision) {
      const int64_t before = gpu().NumPlans();
      const RankOutcome run = Run(Where::kGpu, model,
                                  {std::string("training.precision=") + precision,
                                   "training.train_iters=1", "model.seq_length=112"});
      EXPECT_EQ(run.seen.steps.size(), 1U);
      return gpu().NumPlans() - before;
    };
    EXPECT_EQ(plans("fp32"), 0) << model;
    EXPECT_EQ(plans("bf16"), 2) << model << ": forward and gradient";
  }
}

TEST_F(GpuCurveTest, MicrobatchesAddUp) {
  const std::vector<std::string> fields = {"training.precision=fp32"};
  const RankOutcome one = Run(Where::kGpu, kGptLike, fields);
  for (const char* micro_batch : {"training.micro_batch_size=4", "training.micro_batch_size=1"}) {
    const RankOutcome several = Run(Where::kGpu, kGptLike, Joined(fields, {micro_batch}));
    ExpectSameCurve(several.seen.steps, one.seen.steps, 1e-4, 1e-3);
  }
}

TEST_F(GpuCurveTest, DeterministicRunsAreEqualToTheLastBit) {
  for (const char* precision : {"training.precision=fp32", "training.precision=bf16"}) {
    const std::vector<std::string> fields = {precision, "training.deterministic=true",
                                             "training.micro_batch_size=4"};
    const RankOutcome once = Run(Where::kGpu, kLlamaLike, fields);
    const RankOutcome again = Run(Where::kGpu, kLlamaLike, fields);
    ExpectEqualCurve(again.seen.steps, once.seen.steps);
  }
}

TEST_F(GpuCurveTest, RecomputedActivationsHaveTheSameBits) {
  const std::vector<std::string> fields = {"training.precision=bf16",
                                           "training.deterministic=true"};
  for (const std::string_view model : {kGptLike, kLlamaLike}) {
    const RankOutcome kept = Run(Where::kGpu, model, fields);
    const auto bytes = [](const RankOutcome& run) {
      return MemoryOf(run.seen.steps.back())[static_cast<size_t>(memory::Kind::kActivations)];
    };
    int64_t before = bytes(kept);
    for (const char* mode : {"training.recompute.mode=selective", "training.recompute.mode=full"}) {
      const RankOutcome recomputed = Run(Where::kGpu, model, Joined(fields, {mode}));
      ExpectEqualCurve(recomputed.seen.steps, kept.seen.steps);
      EXPECT_LT(bytes(recomputed), before) << mode;
      before = bytes(recomputed);
    }
  }
}

TEST_F(GpuCurveTest, AHostThatSleepsChangesNothing) {
  const std::vector<std::string> fields = {"training.precision=bf16", "training.deterministic=true",
                                           "training.micro_batch_size=2"};
  const RankOutcome prompt = Run(Where::kGpu, kGptLike, fields);
  adjust_ = [](TrainArgs* args) { args->host_delay = std::chrono::milliseconds(50); };
  const RankOutcome slow = Run(Where::kGpu, kGptLike, fields);
  ExpectEqualCurve(slow.seen.steps, prompt.seen.steps);
}

TEST_F(GpuCurveTest, EvaluationsOfBothDevicesAgree) {
  const std::vector<std::string> fields = {"training.precision=fp32", "training.eval.every_iters=7",
                                           "training.eval.iters=3", "training.micro_batch_size=2",
                                           "model.attention_dropout=0.1"};
  const RankOutcome cpu = Run(Where::kCpu, kGptLike, fields);
  const RankOutcome gpu = Run(Where::kGpu, kGptLike, fields);
  ASSERT_EQ(gpu.seen.evals.size(), cpu.seen.evals.size());
  ASSERT_EQ(gpu.seen.evals.size(), 3U) << "after 7, 14 and the last step";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(gpu.seen.evals[i].tokens, cpu.seen.evals[i].tokens);
    EXPECT_NEAR(gpu.seen.evals[i].loss, cpu.seen.evals[i].loss, 1e-4 * cpu.seen.evals[i].loss);
  }
}

}  // namespace
}  // namespace mt::train
