// Attention dropout on a GPU: how many keys are kept, and that heads and samples draw apart.
#include <cmath>
#include <numeric>

#include "kernels/ops/attention.h"
#include "tests/worker/train/gpu_rig.h"

namespace mt::train {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr int64_t kSeq = 256, kBatch = 2, kHeads = 4, kHeadDim = 8;
constexpr int64_t kWidth = kHeads * kHeadDim;

// With equal logits and values of one, an output is what is left of the probabilities.
class GpuAttentionDropoutTest : public GpuTrainTest {
 protected:
  void SetUp() override {
    GpuTrainTest::SetUp();
    if (IsSkipped()) return;
    stream_ = gpu().device().CreateStream(kernels::StreamPriority::kLow);
  }
  Tensor Make(DType dtype, kernels::Shape shape) {
    buffers_.push_back(
        gpu().device().Allocate(shape.NumElements() * SizeOf(dtype), kernels::MemoryKind::kDevice));
    return {buffers_.back()->data(), dtype, shape};
  }
  template <class T>
  Tensor Upload(const std::vector<T>& values) {
    const Tensor to = Make(kernels::DTypeOf<T>(), {static_cast<int64_t>(values.size())});
    gpu().device().Copy(*stream_, to.data, values.data(), to.Bytes());
    stream_->Synchronize();
    return to;
  }
  static kernels::HeadView Heads(const Tensor& t) {
    return {
        .data = t.data, .s_stride = kBatch * kWidth, .b_stride = kWidth, .head_stride = kHeadDim};
  }
  // Output [s, b, heads * d] as f32.
  std::vector<float> Outputs(DType dtype, double rate) {
    const Tensor zero = Make(dtype, {kSeq, kBatch, kWidth}), one = Make(dtype, zero.shape),
                 out = Make(dtype, zero.shape), lse = Make(DType::kF32, {kBatch, kHeads, kSeq}),
                 wide = Make(DType::kF32, zero.shape);
    gpu().vector().Fill(*stream_, zero, 0);
    gpu().vector().Fill(*stream_, one, 1);
    std::vector<int32_t> positions(kSeq);
    std::iota(positions.begin(), positions.end(), 0);
    gpu().attention().Forward(*stream_, {.shape = {.dtype = dtype,
                                                   .s = kSeq,
                                                   .b = kBatch,
                                                   .a = kHeads,
                                                   .g = kHeads,
                                                   .d = kHeadDim,
                                                   .scale = 1,
                                                   .causal = true},
                                         .q = Heads(zero),
                                         .k = Heads(zero),
                                         .v = Heads(one),
                                         .dropout = {.rate = kernels::MakeDropoutRate(rate),
                                                     .key = 0x1234567,
                                                     .samples = Upload<int64_t>({40, 41}),
                                                     .positions = Upload(positions)},
                                         .o = Heads(out),
                                         .lse = lse});
    gpu().vector().Cast(*stream_, wide, out);
    std::vector<float> host(static_cast<size_t>(kSeq * kBatch * kWidth));
    gpu().device().Copy(*stream_, host.data(), wide.data, wide.Bytes());
    stream_->Synchronize();
    return host;
  }

  std::unique_ptr<kernels::Stream> stream_;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> buffers_;
};

TEST_F(GpuAttentionDropoutTest, KeepsItsShareOfKeys) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const double rate : {0.1, 0.25, 0.5}) {
      const std::vector<float> out = Outputs(dtype, rate);
      const double keep = 1 - std::round(65536 * rate) / 65536;
      double kept = 0, keys = 0;
      int64_t differ = 0;
      for (int64_t row = 0; row < kSeq; ++row) {
        for (int64_t column = 0; column < kBatch * kHeads; ++column) {
          const float* head =
              &out[static_cast<size_t>((row * kBatch * kHeads + column) * kHeadDim)];
          kept += static_cast<double>(*head) * keep * static_cast<double>(row + 1);
          keys += static_cast<double>(row + 1);
          if (column > 0 && *head != head[-kHeadDim]) ++differ;
        }
      }
      // Five standard deviations, and what 16 bits round.
      const double allowed = 5 * std::sqrt(keys * keep * (1 - keep)) +
                             (SizeOf(dtype) == 2 ? 1e-3 * keys : 1e-4 * keys);
      EXPECT_NEAR(kept, keep * keys, allowed) << kernels::Name(dtype) << " rate " << rate;
      EXPECT_GT(differ, kSeq * (kBatch * kHeads - 1) / 2) << "heads and samples draw apart";
    }
  }
}

}  // namespace
}  // namespace mt::train
