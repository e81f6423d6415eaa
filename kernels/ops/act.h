// Activations of the feed-forward block, elementwise. Legend: T tokens, n width of the block's
// first product.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

enum class ActKind : uint8_t {
  kGelu,  // tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016)
};

struct ActArgs {
  ActKind kind = ActKind::kGelu;
  Tensor pre;  // [T, n]
  Tensor y;    // [T, n]
};

struct ActGradArgs {
  ActKind kind = ActKind::kGelu;
  Tensor dy;    // [T, n]
  Tensor pre;   // [T, n]
  Tensor dpre;  // [T, n]; may be the buffer of dy
};

class ActOps {
 public:
  virtual ~ActOps() = default;
  virtual void Act(Stream& stream, const ActArgs& args) const = 0;
  virtual void ActGrad(Stream& stream, const ActGradArgs& args) const = 0;
};

}  // namespace mt::kernels
