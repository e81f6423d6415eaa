// Rotary position embedding (Su et al. 2021) of the packed projection, and the norm of q and k
// heads that may come before it: one trip through q and k. The halves convention of GPT-NeoX and
// Megatron: of the first r channels of a head, i and i + r/2 make a pair that is turned by position
// * frequency i; the others stay. Legend: T tokens, a query heads, g key/value heads, d head size,
// r rotated channels, s sequence, b microbatch, P positions of the table.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3 };

// How frequencies are stretched for longer sequences.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  // kLlama3: frequencies that turn less than low_freq_factor times over original_positions are
  // divided by factor, those above high_freq_factor stay, between them the two are mixed.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
};

struct RopeConfig {
  int64_t head_dim = 0;
  double percent = 1;  // share of a head's channels that is rotated
  double base = 10000;
  RopeScaling scaling;
};

// r: the largest even number of channels within percent of the head.
int64_t RotatedChannels(const RopeConfig& config);

// Radians per position of pair i in [0, r/2): base^(-2i/r), scaled: linear divides by factor (Chen
// et al. 2023); llama3 as apply_scaling of Llama 3.1's reference code does (Dubey et al. 2024).
double RopeFrequency(const RopeConfig& config, int64_t pair);

// Fills `table` [P, r] (f32 or f64, host memory): row p holds cos, then sin, of p * frequency for
// all pairs; computed in fp64 and rounded once.
void FillRopeTable(const RopeConfig& config, const Tensor& table);

// What rotation and its gradient share.
struct RotateShape {
  int64_t batch = 1;  // b: row = s_index * b + b_index
  int64_t a = 0, g = 0, d = 0;
  // Of heads stored larger than they are: channels behind these are zero in q, k, their gradients
  // and the gains, and stay so. The norm's mean is over these alone. 0: all d.
  int64_t logical_d = 0;
  Tensor table;           // accumulator type [P, r]; absent: no rotation (QK norm alone)
  Tensor positions;       // i32 [s], rows of the table; with table
  Tensor q_gain, k_gain;  // [d], of all query and of all key heads; absent: no QK norm
  bool one_plus = false;  // gains are stored as g, applied as 1 + g

  int64_t channels() const { return logical_d > 0 ? logical_d : d; }
};

// With gains each q and k head x is first x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + eps) over
// its channels().
// Nothing is kept without gains: the gradient is the inverse rotation.
struct RotateArgs {
  RotateShape shape;
  Tensor qkv;         // [T, (a + 2g) d], all q, all k, all v; q and k in place, v untouched
  double eps = 1e-5;  // with gains, as the following
  Tensor input;       // [T, (a + g) d]: q and k as they came; kept for backward
  Tensor rstd;        // accumulator type [T, a + g]; kept for backward
};

struct RotateGradArgs {
  RotateShape shape;
  Tensor dqkv;         // [T, (a + 2g) d], in place: gradient of the rotated q and k, then of theirs
                       // before; v's is untouched
  Tensor input, rstd;  // kept
  GradMode mode = GradMode::kOverwrite;
  Tensor dq_gain, dk_gain;  // accumulator type [d]: sums over tokens and heads; with gains
  Workspace workspace;
};

class RopeOps {
 public:
  virtual ~RopeOps() = default;
  virtual void Rotate(Stream& stream, const RotateArgs& args) const = 0;
  virtual int64_t WorkspaceBytes(const RotateGradArgs& args) const = 0;
  virtual void RotateGrad(Stream& stream, const RotateGradArgs& args) const = 0;
};

}  // namespace mt::kernels
