// AddNorm and its gradient over the terms of a sum that counts as stored (Partials::rounded).
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/ops/add_norm.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

// Tensors of a 16-bit type, and a call over them with three terms or with their stored sum.
struct HalfCall {
  static constexpr int64_t kRows = 6, kH = 150;
  static constexpr int kTerms = 3;
  using Rows = std::vector<uint16_t>;

  explicit HalfCall(DType type) : dtype(type) {
    uint32_t state = 5;
    for (Rows& rows : {std::ref(terms[0]), std::ref(terms[1]), std::ref(terms[2]), std::ref(gain),
                       std::ref(residual)}) {
      // Between 2^-13 and 2 in either type.
      for (int64_t i = 0; i < kRows * kH; ++i) {
        state = state * 1664525U + 1013904223U;
        rows.push_back(static_cast<uint16_t>((state >> 16U & 0x83FFU) | 0x3800U));
      }
    }
    out = y = sum = Rows(residual.size());
  }
  Tensor At(Rows& rows) const { return {rows.data(), dtype, {kRows, kH}}; }
  Tensor Vector(Rows& rows) const { return {rows.data(), dtype, {kH}}; }
  Partials Terms() {
    Partials all;
    for (Rows& term : terms) all.tensor[static_cast<size_t>(all.count++)] = At(term);
    return all;
  }
  void Forward(const Partials& partials) {
    Cpu(1).add_norm().AddNorm(AnyStream(), {.residual = At(residual),
                                            .partials = partials,
                                            .kind = NormKind::kRmsNorm,
                                            .gain = Vector(gain),
                                            .residual_out = At(out),
                                            .y = At(y),
                                            .rstd = {rstd.data(), DType::kF32, {kRows}}});
  }
  // The gradient of what Forward wrote, in `y` and `dgain`.
  void Backward(const Partials& dy) {
    AddNormGradArgs args{.dy = dy,
                         .residual_out = At(out),
                         .rstd = {rstd.data(), DType::kF32, {kRows}},
                         .gain = Vector(gain),
                         .kind = NormKind::kRmsNorm,
                         .dresidual = At(y),
                         .dgain = {dgain.data(), DType::kF32, {kH}}};
    Scratch256 scratch(Cpu(1).add_norm().WorkspaceBytes(args));
    args.workspace = scratch.workspace();
    Cpu(1).add_norm().AddNormGrad(AnyStream(), args);
  }

  const DType dtype;
  std::array<Rows, kTerms> terms;
  Rows gain, residual, out, y, sum;
  std::vector<float> rstd = std::vector<float>(kRows), dgain = std::vector<float>(kH);
};

TEST(AddNormTermsTest, RoundedTermsHaveTheBitsOfTheirStoredSum) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    HalfCall stored(dtype), rounded(dtype), wide(dtype);
    Cpu(1).vector().SumPartials(AnyStream(), stored.At(stored.sum), stored.Terms());
    Partials terms = rounded.Terms();
    terms.rounded = true;
    stored.Forward(Partials(stored.At(stored.sum)));
    rounded.Forward(terms);
    wide.Forward(wide.Terms());
    EXPECT_TRUE(rounded.out == stored.out && rounded.y == stored.y && rounded.rstd == stored.rstd);
    EXPECT_FALSE(wide.out == stored.out) << "it makes no difference here";
    stored.Backward(Partials(stored.At(stored.sum)));
    rounded.Backward(terms);
    EXPECT_TRUE(rounded.y == stored.y && rounded.dgain == stored.dgain);
    wide.out = stored.out;
    wide.Backward(wide.Terms());
    EXPECT_FALSE(wide.dgain == stored.dgain);
  }
}

}  // namespace
}  // namespace mt::kernels::cpu
