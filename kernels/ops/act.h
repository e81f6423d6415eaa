// Activations of the feed-forward block, elementwise. Legend: T tokens, n width of what the block's
// second product reads.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// The gated kinds (Shazeer 2020) take pre as two halves: all gate columns, then all up columns, of
// this rank; y = activation(gate) * up.
enum class ActKind : uint8_t {
  kGelu,    // tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016)
  kSwiglu,  // silu(gate) * up, silu(x) = x / (1 + e^-x)
  kGeglu,   // gelu(gate) * up, gelu as above
  kRelu2,   // max(x, 0)^2  (So et al. 2021)
};

constexpr bool IsGated(ActKind kind) { return kind == ActKind::kSwiglu || kind == ActKind::kGeglu; }

// Columns of pre for n columns of y: n, or 2n with a gate.
constexpr int64_t PreColumns(ActKind kind, int64_t n) { return IsGated(kind) ? 2 * n : n; }

struct ActArgs {
  ActKind kind = ActKind::kGelu;
  Tensor pre;  // [T, n or 2n]
  Tensor y;    // [T, n]
};

struct ActGradArgs {
  ActKind kind = ActKind::kGelu;
  Tensor dy;    // [T, n]
  Tensor pre;   // [T, n or 2n]
  Tensor dpre;  // like pre; without a gate it may be the buffer of dy
};

class ActOps {
 public:
  virtual ~ActOps() = default;
  virtual void Act(Stream& stream, const ActArgs& args) const = 0;
  virtual void ActGrad(Stream& stream, const ActGradArgs& args) const = 0;
};

}  // namespace mt::kernels
