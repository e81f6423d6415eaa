// The activation functions of the MLP (feed-forward block) and their gradients, elementwise over
// rows.
// Legend: T tokens; n width of the activation's output, which is the input width of the second
// linear layer (fc2).
//
// All tensors of a call have one dtype and are contiguous. Arithmetic is fp32 (fp64 under f64), and
// each output is rounded once. Rows may start at any address; 16-byte alignment and n % 8 == 0 let
// a GPU use vector accesses.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// The gated kinds (Shazeer 2020, "GLU Variants Improve Transformer") read pre [T, 2n] as two
// halves: all gate columns of this tensor-parallel rank first, then all its up columns. y =
// activation(gate) * up.
enum class ActKind : uint8_t {
  kGelu,     // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the tanh form (Hendrycks & Gimpel
             // 2016)
  kSwiglu,   // silu(gate) * up, silu(x) = x / (1 + e^-x)
  kGeglu,    // gelu(gate) * up, gelu as above
  kRelu2,    // max(x, 0)^2  (So et al. 2021)
  kGeluErf,  // x Phi(x), Phi the normal distribution function: GELU itself, from which the tanh
             // form is up to 5e-4 away. NaN for both infinities
};

constexpr bool IsGated(ActKind kind) { return kind == ActKind::kSwiglu || kind == ActKind::kGeglu; }

// Returns the number of columns of pre for n columns of y: n, or 2n for a gated kind.
constexpr int64_t PreColumns(ActKind kind, int64_t n) { return IsGated(kind) ? 2 * n : n; }

// Operands of y = activation(pre). y must not overlap pre.
struct ActArgs {
  ActKind kind = ActKind::kGelu;
  Tensor pre;  // [T, n or 2n]
  Tensor y;    // [T, n]
};

// Operands of dpre = dy * activation'(pre). pre is the same tensor that Act read.
struct ActGradArgs {
  ActKind kind = ActKind::kGelu;
  Tensor dy;    // [T, n]
  Tensor pre;   // [T, n or 2n]
  Tensor dpre;  // like pre; for an ungated kind it may be the buffer of dy
};

// Both calls enqueue work on `stream` and return. They abort (CHECK) on shapes that do not fit each
// other and on dtypes that the backend does not compute in.
class ActOps {
 public:
  virtual ~ActOps() = default;
  virtual void Act(Stream& stream, const ActArgs& args) const = 0;
  virtual void ActGrad(Stream& stream, const ActGradArgs& args) const = 0;
};

}  // namespace mt::kernels
