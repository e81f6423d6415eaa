// Residual add and norm in one pass over memory: closes a residual branch (sum of tensor-parallel
// partial outputs, bias, position embedding rows, dropout, residual add) and normalises the result
// for the layer that follows.
// Legend: R rows, in [s, b] order (a slice of s under sequence parallelism); h hidden size; b
// microbatch size; S positions of the position table.
//
// Dtypes: activations, weights and partials share one float type; statistics and parameter
// gradients have its accumulator type (kernels/ops/README.md, rule 4). LayerNorm: Ba et al. 2016;
// RMSNorm: Zhang & Sennrich 2019.
#pragma once

#include <array>

#include "kernels/core/device.h"
#include "kernels/core/random.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

inline constexpr int kMaxPartials = 8;

// Up to kMaxPartials tensors of one shape and dtype that are summed in index order, in the
// accumulator type.
struct Partials {
  std::array<Tensor, kMaxPartials> tensor;
  int count = 0;
  // The sum is rounded to the partials' dtype before it is used, as if SumPartials had stored it:
  // an op that takes the terms of a sum over ranks sees the bits of one that takes the sum. What
  // it writes has the same bits too, but for a GPU's gradients, whose sums over rows and columns
  // have another order where there are several partials.
  bool rounded = false;

  Partials() = default;
  explicit Partials(const Tensor& one) : count(1) { tensor[0] = one; }
};

// Selects the mask of one dropout site: the Philox key of the site, and per row the sample number
// and the absolute position in the sequence, from which the counter is made (HiddenDropoutCounter
// in kernels/core/random.h). Forward and backward draw the same mask, and it does not depend on how
// rows are distributed over ranks. samples and positions are read only while rate is active.
struct Dropout {
  DropoutRate rate;
  uint64_t key = 0;
  Tensor samples;    // i64 [b], sample numbers counted over the whole run
  Tensor positions;  // i32 [R / b], absolute position within the sample
};

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

// Operands of
//   branch       = dropout(sum of partials + bias + position_table[positions])
//   residual_out = residual + branch
//   y            = norm(residual_out) * gain + shift
struct AddNormArgs {
  Tensor residual;    // [R, h], or absent (before the first layer)
  Partials partials;  // each [R, h]
  Tensor bias;        // [h] or absent
  // [S, h] or absent: a row of it is added to the branch before dropout.
  Tensor position_table;
  // Rows of position_table, read with it only: i32 [R / b], or i32 [R], each row's own
  // (row_positions.h). They may restart at documents; those of the mask count through the sample.
  Tensor positions;
  int64_t batch = 1;  // b
  Dropout dropout;
  NormKind kind = NormKind::kLayerNorm;
  double eps = 1e-5;
  bool one_plus = false;  // the gain is stored as g and applied as 1 + g (Megatron's
                          // layernorm_zero_centered_gamma)
  Tensor gain;            // [h]; absent: no norm, and only residual_out is written
  Tensor shift;           // [h], or absent (always absent for RMSNorm)
  // [R, h], always written. May be the buffer of `residual` or of one of the partials. The norm
  // reads the values as they were rounded into this tensor, so that backward and recomputation see
  // the same numbers.
  Tensor residual_out;
  Tensor y;           // [R, h]
  Tensor mean, rstd;  // accumulator type [R], kept for backward; mean is absent for RMSNorm
};

// Operands of the gradient. With g = dy * gain and xhat = (residual_out - mean) * rstd:
//   dresidual = rstd (g - mean(g) - xhat mean(g xhat)) + dresidual_in    (RMSNorm: without mean(g))
//   dbranch   = dresidual * dropout mask
// The gradient of position_table is EmbeddingOps::ScatterGrad's `dposition`.
struct AddNormGradArgs {
  Partials dy;  // gradient of y, as partials [R, h]; count is 0 if and only if there is no norm
  Tensor dresidual_in;  // gradient of residual_out from later layers, [R, h], or absent
  Tensor residual_out;  // kept
  Tensor mean, rstd;    // kept
  Tensor gain;          // absent if there is no norm
  NormKind kind = NormKind::kLayerNorm;
  bool one_plus = false;
  Dropout dropout;
  int64_t batch = 1;
  // [R, h], gradient of `residual`; may be the buffer of dresidual_in.
  Tensor dresidual;
  // [R, h], gradient of the branch, which is that of each partial. Without active dropout it equals
  // dresidual and must be the same buffer or absent; with active dropout it must be a buffer of its
  // own.
  Tensor dbranch;
  GradMode mode = GradMode::kOverwrite;
  Tensor dgain, dshift;  // accumulator type [h]; absent together with gain and shift
  Tensor dbias;          // accumulator type [h]: column sums of dbranch; absent without a bias
  Workspace workspace;
};

// AddNorm and AddNormGrad enqueue work on `stream` and return; they abort (CHECK) on inconsistent
// shapes. All column sums are added in an order that depends on the shape and, on a GPU, its number
// of SMs: equal calls give equal bits. On a GPU h is at most 16,384.
class AddNormOps {
 public:
  virtual ~AddNormOps() = default;
  virtual void AddNorm(Stream& stream, const AddNormArgs& args) const = 0;
  // Size of AddNormGradArgs::workspace, from shapes and dtypes alone. Throws DeviceError where the
  // GPU's shared memory is too small for this shape.
  virtual int64_t WorkspaceBytes(const AddNormGradArgs& args) const = 0;
  virtual void AddNormGrad(Stream& stream, const AddNormGradArgs& args) const = 0;
};

}  // namespace mt::kernels
