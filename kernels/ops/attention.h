// Self-attention that keeps only its output and the log-sum-exp of each row of logits for backward,
// never an [s, s] matrix (FlashAttention: Dao et al. 2022; FlashAttention-2: Dao 2023, §3.1), on
// the CPU too. q, k and v are read as strided views of the packed qkv projection.
// Legend: s sequence length, b microbatch size, a query heads, g key/value heads (a is a multiple
// of g; query head i reads key/value head i / (a / g): grouped-query attention, Ainslie et al.
// 2023), d head size.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/random.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// A strided view of [s, b, heads, d]. Element (s, b, head, channel) lies at data + s * s_stride + b
// * b_stride + head * head_stride + channel; strides count elements and channels are contiguous. On
// a GPU cuDNN takes views whose pointer is 16-byte aligned and whose strides are multiples of 8;
// other views run on the custom kernels.
struct HeadView {
  void* data = nullptr;
  int64_t s_stride = 0, b_stride = 0, head_stride = 0;
};

// Dropout of the attention probabilities. The mask is a function of key, sample, global head and
// absolute positions (AttentionDropoutCounter in kernels/core/random.h), so that backward draws it
// again and no rank layout changes it.
struct AttentionDropout {
  DropoutRate rate;
  uint64_t key = 0;
  Tensor samples;    // i64 [b], sample numbers counted over the whole run
  Tensor positions;  // i32 [s], absolute positions of the queries
  Tensor
      // i32 [s], absolute positions of the keys; absent: the same as the queries'.
      key_positions;
  int32_t first_head = 0;  // global number of query head 0
};

// Sizes and mask of a call. Query i and key j of the call are elements q0 + i and k0 + j of their
// sequence. With `causal` a query attends to itself and to earlier keys, and with `window` only to
// the last `window` of those, itself included (sliding window, Jiang et al. 2023 §2; Megatron's
// window_size does not count the query itself, so it is window - 1). A query that attends to no key
// of the call gets o = 0 and lse = -infinity.
struct AttentionShape {
  DType dtype = DType::kF32;
  int64_t s = 0, b = 0, a = 0, g = 0, d = 0;
  // Factor of the logits: 1 / sqrt(logical d), where heads may be stored with padding channels.
  // Zero channels add nothing to logits, outputs or gradients, and their gradients are zero, so no
  // other field describes the padding.
  double scale = 1;
  bool causal = true;
  int64_t window = 0;  // keys; requires causal; 0: no limit
  int64_t q0 = 0, k0 = 0;
  // ALiBi (Press et al. 2022): accumulator type [a], or absent. slope * (key - query), counted in
  // elements of the sequence, is added to the scaled logits.
  Tensor slopes;
};

// Writes the ALiBi slopes of query heads [first_head, first_head + slopes.NumElements()) out of
// `heads` into `slopes` (f32 or f64, in host memory): 2^(-8 i / heads), i = 1, 2, ..., for a power
// of two; otherwise the slopes of the next lower power of two, followed by every second one of the
// next higher power (get_slopes in Press et al. 2022).
void FillAlibiSlopes(int64_t heads, int64_t first_head, const Tensor& slopes);

// Operands of o = dropout(softmax(scale * q k^T + ALiBi + mask)) v. o and lse are written; both are
// kept for backward.
struct AttentionForwardArgs {
  AttentionShape shape;
  HeadView q, k, v;
  AttentionDropout dropout;
  HeadView o;  // usually [s, b, a, d] contiguous
  Tensor lse;  // accumulator type [b, a, s]: log of the sum of exponentials of the (biased) logits
  Workspace workspace;
};

// Operands of the gradient. dq, dk and dv are overwritten and must not overlap the inputs.
struct AttentionGradArgs {
  AttentionShape shape;
  HeadView q, k, v;
  AttentionDropout dropout;
  HeadView o;    // kept
  Tensor lse;    // kept
  HeadView do_;  // gradient of o, same shape as o
  // Overwritten; a key/value head's gradients are summed over the query heads of its group.
  HeadView dq, dk, dv;
  // Equal calls give equal bits. If false, cuDNN may sum dq in any order; all other implementations
  // are always deterministic.
  bool deterministic = true;
  Workspace workspace;
};

// Operands of decoding: each row is one token, which attends to itself and to the earlier tokens of
// its sequence, whose keys and values lie in caches. The rows' own keys and values are stored in
// the caches first, so rows may be the next tokens of several sequences, or several tokens of one
// (a prompt), in any order. No two rows have the same sequence and position (unchecked). Legend: T
// rows, n positions that the caches have room for, c sequences that they have room for.
struct AttentionDecodeArgs {
  DType dtype = DType::kF32;
  int64_t a = 0, g = 0, d = 0;
  double scale = 1;    // as in AttentionShape, and so are window and slopes
  int64_t window = 0;  // keys, the row's own included; 0: no limit
  Tensor slopes;       // ALiBi: accumulator type [a], or absent
  Tensor qkv;        // [T, (a + 2g) d]: of a row all q, all k, all v heads, as RopeOps leaves them
  Tensor sequences;  // i32 [T], in [0, c)
  Tensor positions;  // i32 [T], in [0, n): keys at this and lower positions are seen
  bool one_row_each = false;  // no two rows are of one sequence, which a GPU makes use of
  Tensor k_cache, v_cache;    // [c, g, n, d]; written at the rows' positions
  Tensor o;                   // [T, a d], written
  Workspace workspace;
};

// Forward and Grad enqueue work on `stream` and return; they abort (CHECK) on inconsistent shapes.
// Plan announces a call that will be made and returns the bytes of workspace that it needs. It
// reads shapes, strides and dtypes only. On a GPU it registers which implementation computes the
// call, builds cuDNN's execution plan on the first call for a shape (about half a second), and
// throws DeviceError where no implementation takes the shape. Planning the same call again changes
// nothing.
class AttentionOps {
 public:
  virtual ~AttentionOps() = default;
  virtual int64_t Plan(const AttentionForwardArgs& args) = 0;
  virtual void Forward(Stream& stream, const AttentionForwardArgs& args) const = 0;
  virtual int64_t Plan(const AttentionGradArgs& args) = 0;
  virtual void Grad(Stream& stream, const AttentionGradArgs& args) const = 0;

  // Decoding, in the types that the backend computes in, for heads of up to 256 on a GPU; the
  // default body throws DeviceError. A row's result does not depend on the other rows of a call, to
  // the bit, but it does on n. On a GPU sequences and positions are not checked.
  virtual int64_t DecodeWorkspaceBytes(const AttentionDecodeArgs& args) const;
  virtual void Decode(Stream& stream, const AttentionDecodeArgs& args) const;
  // The part of Decode that stores the rows' keys and values, alone: of prompts whose attention
  // Forward computes. Reads no slopes and needs no workspace.
  virtual void StoreKeys(Stream& stream, const AttentionDecodeArgs& args) const;
};

}  // namespace mt::kernels
