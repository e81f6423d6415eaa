// Causal self-attention that keeps only its output and the log-sum-exp, never an [s, s] matrix (Dao
// et al. 2022, 2023 §3.1), on the CPU too. Reads q, k, v as strided views of the packed projection.
// Legend: s sequence, b microbatch, a query heads, g key/value heads (a is a multiple of g), d head
// size.
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
  Tensor positions;        // i32 [s], absolute positions
  int32_t first_head = 0;  // global number of query head 0
};

struct AttentionShape {
  DType dtype = DType::kF32;
  int64_t s = 0, b = 0, a = 0, g = 0, d = 0;
  double scale = 1;  // of the logits, usually 1 / sqrt(d)
  bool causal = true;
};

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
