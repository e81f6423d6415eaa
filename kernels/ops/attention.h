// Causal self-attention that keeps only its output and the log-sum-exp, never an [s, s] matrix (Dao
// et al. 2022, 2023 §3.1), on the CPU too. Reads q, k, v as strided views of the packed projection.
// Legend: s sequence, b microbatch, a query heads, g key/value heads (a is a multiple of g; query
// head i reads key/value head i / (a / g)), d head size.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/random.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// Element (s, b, head, channel) lies at data + s * s_stride + b * b_stride + head * head_stride +
// channel, in elements.
struct HeadView {
  void* data = nullptr;
  int64_t s_stride = 0, b_stride = 0, head_stride = 0;
};

struct AttentionDropout {
  DropoutRate rate;
  uint64_t key = 0;
  Tensor samples;          // i64 [b]
  Tensor positions;        // i32 [s], absolute positions of the queries
  Tensor key_positions;    // i32 [s], of the keys; absent: the queries'
  int32_t first_head = 0;  // global number of query head 0
};

// Sizes and mask. Query i and key j of the call are elements q0 + i and k0 + j of their sequence. A
// query sees itself and what is before it (causal), of that the last `window` keys, itself included
// (Jiang et al. 2023 §2; Megatron's window_size counts the keys before it alone, so window - 1). A
// query that sees no key of the call has o = 0 and lse = -infinity.
struct AttentionShape {
  DType dtype = DType::kF32;
  int64_t s = 0, b = 0, a = 0, g = 0, d = 0;
  // Of the logits: 1 / sqrt(d), of the logical d where heads are stored larger. (Zero channels add
  // nothing to logits, outputs or gradients, and their gradients are zero: no other field for
  // them.)
  double scale = 1;
  bool causal = true;
  int64_t window = 0;  // with causal; 0 = no limit
  int64_t q0 = 0, k0 = 0;
  // ALiBi (Press et al. 2022): accumulator type [a] or absent; slope * (key - query), in elements
  // of the sequence, is added to the scaled logits.
  Tensor slopes;
};

// Writes the slopes of query heads [first_head, first_head + slopes.NumElements()) of `heads` into
// `slopes` (f32 or f64, host memory): 2^(-8 i / heads), i = 1, 2, ... for a power of two; else
// those of the power of two below, then every second one of the power above (Press et al. 2022,
// their get_slopes).
void FillAlibiSlopes(int64_t heads, int64_t first_head, const Tensor& slopes);

struct AttentionForwardArgs {
  AttentionShape shape;
  HeadView q, k, v;
  AttentionDropout dropout;
  HeadView o;  // usually [s, b, a, d] contiguous
  Tensor lse;  // accumulator type [b, a, s]: log of the sum of exponentials of the scaled logits
  Workspace workspace;
};

struct AttentionGradArgs {
  AttentionShape shape;
  HeadView q, k, v;
  AttentionDropout dropout;
  HeadView o;           // kept
  Tensor lse;           // kept
  HeadView do_;         // gradient of o
  HeadView dq, dk, dv;  // written
  bool deterministic = true;
  Workspace workspace;
};

class AttentionOps {
 public:
  virtual ~AttentionOps() = default;
  virtual int64_t WorkspaceBytes(const AttentionForwardArgs& args) const = 0;
  virtual void Forward(Stream& stream, const AttentionForwardArgs& args) const = 0;
  virtual int64_t WorkspaceBytes(const AttentionGradArgs& args) const = 0;
  virtual void Grad(Stream& stream, const AttentionGradArgs& args) const = 0;
};

}  // namespace mt::kernels
