// Rotary position embedding (RoPE; Su et al. 2021) of the packed qkv projection, and the RMSNorm of
// q and k heads (QK norm) that may precede it, in one pass over q and k. The channel pairing is
// that of GPT-NeoX and Megatron-LM (not interleaved): of the first r channels of a head, channels i
// and i + r/2 form a pair that is rotated by position * frequency i; the other channels are
// unchanged.
// Legend: T tokens, a query heads, g key/value heads, d head size, r rotated channels, s sequence
// length, b microbatch size, P positions of the table.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// Change of the frequencies for sequences longer than the model was trained with; formulas at
// RopeFrequency.
enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3 };

// Parameters of the scaling kind.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  // kLlama3: frequencies with fewer than low_freq_factor turns over original_positions are divided
  // by factor, those with more than high_freq_factor turns stay as they are, and those in between
  // are interpolated linearly.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
};

// The rotation of a model, as its job spec gives it.
struct RopeConfig {
  int64_t head_dim = 0;
  double percent = 1;  // fraction of a head's channels that is rotated (Megatron: rotary_percent)
  double base = 10000;
  RopeScaling scaling;
};

// Returns r: the largest even number of channels within `percent` of the head.
int64_t RotatedChannels(const RopeConfig& config);

// Returns radians per position of pair i in [0, r/2): base^(-2i/r), then scaled. kLinear divides by
// factor (Chen et al. 2023); kLlama3 follows apply_scaling of Llama 3.1's reference code (Dubey et
// al. 2024).
double RopeFrequency(const RopeConfig& config, int64_t pair);

// Fills `table` [P, r] (f32 or f64, in host memory): row p holds the cosines, then the sines, of p
// * frequency for all pairs. They are computed in fp64 and rounded once.
void FillRopeTable(const RopeConfig& config, const Tensor& table);

// Operands and sizes that the rotation and its gradient share.
struct RotateShape {
  int64_t batch = 1;  // b: row = s_index * b + b_index; read with positions [s] only
  int64_t a = 0, g = 0, d = 0;
  // Number of real channels of heads that are stored with padding; 0: all d. Padding channels are
  // zero in q, k, their gradients and the gains, and stay zero. The norm's mean is over the real
  // channels only.
  int64_t logical_d = 0;
  Tensor table;  // accumulator type [P, r], in device memory; absent: no rotation (QK norm alone)
  // Rows of the table, read with `table` only: i32 [s], or i32 [T], each row's own
  // (row_positions.h).
  Tensor positions;
  Tensor q_gain, k_gain;  // [d], shared by all query and all key heads; both absent: no QK norm
  bool one_plus = false;  // the gains are stored as g and applied as 1 + g

  int64_t channels() const { return logical_d > 0 ? logical_d : d; }
};

// Operands of the rotation. With gains, each q and k head x is first normalised: x * rstd * gain,
// rstd = 1 / sqrt(mean(x^2) + eps), the mean over channels(). Without gains nothing is kept for
// backward, because the gradient is the inverse rotation.
struct RotateArgs {
  RotateShape shape;
  Tensor qkv;         // [T, (a + 2g) d]: all q, all k, all v heads; q and k in place, v untouched
  double eps = 1e-5;  // this and the fields below are read with gains only
  Tensor input;       // [T, (a + g) d], written: q and k before the norm, kept for backward
  Tensor rstd;        // accumulator type [T, a + g], written; kept for backward
};

// Operands of the gradient.
struct RotateGradArgs {
  RotateShape shape;
  // [T, (a + 2g) d], in place: from the gradient of the rotated q and k to that of q and k before
  // norm and rotation; v's part is untouched.
  Tensor dqkv;
  Tensor input, rstd;  // kept
  GradMode mode = GradMode::kOverwrite;
  Tensor dq_gain, dk_gain;  // accumulator type [d]: sums over tokens and heads; with gains only
  Workspace workspace;
};

// Rotate and RotateGrad enqueue work on `stream` and return; they abort (CHECK) on inconsistent
// shapes. On a GPU, heads with QK norm have at most 256 channels. WorkspaceBytes reads shapes and
// dtypes only.
class RopeOps {
 public:
  virtual ~RopeOps() = default;
  virtual void Rotate(Stream& stream, const RotateArgs& args) const = 0;
  virtual int64_t WorkspaceBytes(const RotateGradArgs& args) const = 0;
  virtual void RotateGrad(Stream& stream, const RotateGradArgs& args) const = 0;
};

}  // namespace mt::kernels
