// Call logs and replays on the CPU backend: which calls are logged, how operands become extents,
// and which memory a replay touches.
#include "kernels/replay/replay.h"

#include <cmath>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/replay/call_text.h"
#include "kernels/replay/logging_backend.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::replay {
namespace {

using cpu::AnyStream;
using cpu::Array;
using cpu::Cpu;

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() : log_(&Cpu(1).device()), logging_(MakeLoggingBackend(&Cpu(1), &log_)) {}

  // What was logged since the last time.
  std::vector<LoggedCall> Logged() {
    log_.Stop();
    return log_.Take();
  }

  CallLog log_;
  std::unique_ptr<Backend> logging_;
};

TEST_F(ReplayTest, EqualCallsCountAndOthersAreKeptApart) {
  Array<float> x({4, 8}), w({16, 8}), y({4, 16}), bias({16}), dw({16, 8});
  const auto forward = [&](const Tensor& with_bias) {
    logging_->linear().Forward(
        AnyStream(), {.x = x.tensor(), .w = w.tensor(), .bias = with_bias, .y = y.tensor()});
  };
  const auto weight_grad = [&](GradMode mode) {
    logging_->linear().WeightGrad(
        AnyStream(), {.dy = y.tensor(), .x = x.tensor(), .mode = mode, .dw = dw.tensor()});
  };
  forward({});  // before the log is on
  log_.Start();
  for (int i = 0; i < 3; ++i) forward({});
  forward(bias.tensor());
  weight_grad(GradMode::kOverwrite);
  weight_grad(GradMode::kAdd);
  weight_grad(GradMode::kAdd);
  const std::vector<LoggedCall> calls = Logged();
  ASSERT_EQ(calls.size(), 4U);
  std::vector<int64_t> counts;
  for (const LoggedCall& call : calls) counts.push_back(call.count);
  EXPECT_THAT(counts, testing::ElementsAre(3, 1, 1, 2));
  EXPECT_EQ(LabelOf(*calls[0].call), "linear.Forward x[4,8] w[16,8] y[4,16]");
  EXPECT_EQ(LabelOf(*calls[3].call), "linear.WeightGrad dy[4,16] x[4,8] dw[16,8] add");
  EXPECT_NE(SignatureOf(*calls[0].call), SignatureOf(*calls[1].call));
  forward({});  // after it
  EXPECT_TRUE(Logged().empty());
}

TEST_F(ReplayTest, AFusedEntryIsOneCallAndDoesWhatItDidBefore) {
  Array<float> x({4, 8}), w({16, 8}), pre({4, 16}), y({4, 16}), pre_alone({4, 16}),
      y_alone({4, 16});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (int64_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(i));
  log_.Start();
  logging_->linear().ForwardAct(
      AnyStream(), {.x = x.tensor(), .w = w.tensor(), .pre = pre.tensor(), .y = y.tensor()});
  Cpu(1).linear().ForwardAct(
      AnyStream(),
      {.x = x.tensor(), .w = w.tensor(), .pre = pre_alone.tensor(), .y = y_alone.tensor()});
  EXPECT_EQ(y, y_alone);
  EXPECT_EQ(pre, pre_alone);
  const std::vector<LoggedCall> calls = Logged();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].call->entry(), "linear.ForwardAct");
}

// In bf16 the CPU needs a workspace for every entry. A fused entry needs its primitive's and, for a
// gated activation, the gradient of the activation's output behind 256-byte alignment.
TEST_F(ReplayTest, PlansAreThoseOfTheWrappedBackend) {
  static char byte = 0;  // planning reads shapes, never contents
  const auto of = [](int64_t rows, int64_t columns, DType dtype = DType::kBf16) {
    return Tensor{&byte, dtype, {rows, columns}};
  };
  const Tensor x = of(4, 8), w = of(48, 8), y = of(4, 48), pre = of(4, 16);
  const LinearForwardArgs forward{.x = x, .w = w, .y = y};
  const LinearInputGradArgs input_grad{.dy = y, .w = w, .dx = x};
  const LinearWeightGradArgs weight_grad{.dy = y, .x = x, .dw = of(48, 8, DType::kF32)};
  LinearOps& plain = Cpu(1).linear();
  LinearOps& logged = logging_->linear();
  EXPECT_GT(plain.Plan(weight_grad), 0);
  EXPECT_GT(plain.Plan(input_grad), plain.Plan(weight_grad));
  EXPECT_EQ(logged.Plan(forward), plain.Plan(forward));
  EXPECT_EQ(logged.Plan(LinearForwardActArgs{.x = x, .w = w, .pre = y, .y = y}),
            plain.Plan(forward));
  EXPECT_EQ(logged.Plan(input_grad), plain.Plan(input_grad));
  EXPECT_EQ(logged.Plan(LinearInputGradActArgs{
                .dy = y, .w = w, .pre = pre, .act = ActKind::kSwiglu, .dpre = pre}),
            plain.Plan(input_grad) + 256);
  EXPECT_EQ(logged.Plan(weight_grad), plain.Plan(weight_grad));
}

TEST_F(ReplayTest, ViewsOfOneProjectionAreOneExtentAndIndicesAreOthers) {
  constexpr int64_t kS = 4, kB = 2, kA = 2, kD = 8, kWidth = kA * kD;
  Array<float> qkv({kS * kB, 3 * kWidth}), o({kS * kB, kWidth}), lse({kB, kA, kS});
  Array<int64_t> samples({kB});
  Array<int32_t> positions({kS});
  samples[1] = 7;
  std::iota(positions.data(), positions.data() + kS, 0);
  const auto view = [&](Array<float>& of, int64_t part, int64_t parts) {
    return HeadView{of.data() + part * kWidth, kB * parts * kWidth, parts * kWidth, kD};
  };
  AttentionForwardArgs args{.shape = {.s = kS, .b = kB, .a = kA, .g = kA, .d = kD},
                            .q = view(qkv, 0, 3),
                            .k = view(qkv, 1, 3),
                            .v = view(qkv, 2, 3),
                            .dropout = {.rate = MakeDropoutRate(0.5),
                                        .samples = samples.tensor(),
                                        .positions = positions.tensor()},
                            .o = view(o, 0, 1),
                            .lse = lse.tensor()};
  std::vector<char> scratch(static_cast<size_t>(logging_->attention().Plan(args)));
  args.workspace = {scratch.data(), static_cast<int64_t>(scratch.size())};
  log_.Start();
  logging_->attention().Forward(AnyStream(), args);
  const std::vector<LoggedCall> calls = Logged();
  ASSERT_EQ(calls.size(), 1U);
  int64_t indices = 0, qkv_bytes = 0;
  for (const Extent& extent : ExtentsOf(*calls[0].call)) {
    indices += extent.indices ? 1 : 0;
    if (extent.begin == reinterpret_cast<char*>(qkv.data())) qkv_bytes = extent.bytes;
  }
  EXPECT_EQ(ExtentsOf(*calls[0].call).size(), 5U);  // qkv, o, lse; samples, positions
  EXPECT_EQ(qkv_bytes, qkv.tensor().Bytes());
  EXPECT_EQ(indices, 2);
  ASSERT_EQ(calls[0].indices.size(), 2U);
  EXPECT_EQ(calls[0].indices[0].size() + calls[0].indices[1].size(),
            kB * sizeof(int64_t) + kS * sizeof(int32_t));
}

TEST_F(ReplayTest, ReplaysEachKindWithTheIndicesOfTheLog) {
  Array<int32_t> tokens({6});
  Array<float> table({10, 4}), out({6, 4});
  for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  for (int64_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(9 - i);
  log_.Start();
  logging_->embedding().Gather(
      AnyStream(), {.tokens = tokens.tensor(), .table = table.tensor(), .out = out.tensor()});
  logging_->vector().Fill(AnyStream(), table.tensor(), 3);
  logging_->vector().Fill(AnyStream(), table.tensor(), 5);
  const std::vector<LoggedCall> calls = Logged();
  // The next batch has come: ids that no table of the log has rows for.
  for (int64_t i = 0; i < tokens.size(); ++i) tokens[i] = 1 << 20;
  for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  int progress = 0;
  const std::vector<CallTime> times =
      Replay(Cpu(1), calls,
             {.rotate_bytes = 2000, .seconds = 0.002, .large_seconds = 0.004, .on_progress = [&] {
                ++progress;
              }});
  ASSERT_EQ(times.size(), 2U);
  EXPECT_GE(times[0].total(), times[1].total());
  int64_t gathers = 0, fills = 0;
  for (const CallTime& time : times) {
    EXPECT_GT(time.seconds, 0);
    (time.label.starts_with("embedding.Gather") ? gathers : fills) += time.count;
  }
  EXPECT_EQ(gathers, 1);
  EXPECT_EQ(fills, 2);  // one kind: the value that is filled in is no matter
  EXPECT_GE(progress, 3);
  // Row 9 of a table that the replayed fills have left at 0, 1, 2 ... or at the first one's 3.
  EXPECT_TRUE(out[0] == 36 || out[0] == 3) << out[0];
  EXPECT_EQ(tokens[0], 1 << 20) << "indices are replayed in memory of their own";
}

TEST_F(ReplayTest, CallsOfSeveralThreadsAreAllCounted) {
  log_.Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      const auto stream = Cpu(1).device().CreateStream(StreamPriority::kLow);
      Array<float> to({32}), from({32});
      for (int i = 0; i < 50; ++i) logging_->vector().AddTo(*stream, to.tensor(), from.tensor());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<LoggedCall> calls = Logged();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].count, 200);
}

}  // namespace
}  // namespace mt::kernels::replay
