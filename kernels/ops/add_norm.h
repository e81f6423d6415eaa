// The kernel of a layer's border: closes a branch (sum of partial outputs, bias, position rows,
// dropout, residual) and normalises the result for the next one, in one trip through memory.
// Legend: R rows ([s, b] order, a slice of s under sequence parallelism), h hidden, b microbatch.
#pragma once

#include <array>

#include "kernels/core/device.h"
#include "kernels/core/random.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

inline constexpr int kMaxPartials = 8;

// Up to kMaxPartials tensors that are summed in index order.
struct Partials {
  std::array<Tensor, kMaxPartials> tensor;
  int count = 0;

  Partials() = default;
  explicit Partials(const Tensor& one) : count(1) { tensor[0] = one; }
};

// Which random mask: Philox key of the site, sample numbers and absolute positions of the rows.
struct Dropout {
  DropoutRate rate;
  uint64_t key = 0;
  Tensor samples;    // i64 [b], running sample numbers
  Tensor positions;  // i32 [R / b], absolute position in the sample
};

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

struct AddNormArgs {
  Tensor residual;        // [R, h] or absent (first layer)
  Partials partials;      // each [R, h]
  Tensor bias;            // [h] or absent
  Tensor position_table;  // [S, h] or absent: row positions[r / b] is added to the branch before
                          // dropout
  Tensor positions;       // i32 [R / b], with position_table
  int64_t batch = 1;      // b
  Dropout dropout;
  NormKind kind = NormKind::kLayerNorm;
  double eps = 1e-5;
  bool one_plus = false;  // gain is stored as g, applied as 1 + g
  Tensor gain;            // [h]; absent: no norm, only residual_out is written
  Tensor shift;           // [h] or absent (RMSNorm)
  // [R, h] = residual + dropout(sum of partials + bias + position rows); may be the buffer of the
  // residual or of a partial. The norm reads it as stored, so that it may be computed again from
  // it.
  Tensor residual_out;
  Tensor y;           // [R, h] = norm(residual_out) * gain + shift
  Tensor mean, rstd;  // accumulator type [R]; mean absent for RMSNorm
};

struct AddNormGradArgs {
  Partials dy;          // gradient of y as partials [R, h]; count 0 without norm
  Tensor dresidual_in;  // gradient of residual_out from later layers [R, h], or absent
  Tensor residual_out;  // kept
  Tensor mean, rstd;    // kept
  Tensor gain;          // absent: no norm
  NormKind kind = NormKind::kLayerNorm;
  bool one_plus = false;
  Dropout dropout;
  int64_t batch = 1;
  // Gradient of `residual` [R, h]; may be the buffer of dresidual_in.
  Tensor dresidual;
  // Gradient of each partial (= of the branch) [R, h]; without active dropout the same buffer as
  // dresidual.
  Tensor dbranch;
  GradMode mode = GradMode::kOverwrite;
  Tensor dgain, dshift;  // accumulator type [h]; absent with gain absent, or shift absent
  Tensor dbias;          // accumulator type [h]: column sums of dbranch; absent without bias
  Workspace workspace;
};

class AddNormOps {
 public:
  virtual ~AddNormOps() = default;
  virtual void AddNorm(Stream& stream, const AddNormArgs& args) const = 0;
  virtual int64_t WorkspaceBytes(const AddNormGradArgs& args) const = 0;
  virtual void AddNormGrad(Stream& stream, const AddNormGradArgs& args) const = 0;
};

}  // namespace mt::kernels
