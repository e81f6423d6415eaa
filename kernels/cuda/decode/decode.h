// The kernels of decoding: products of a few rows, and attention of single tokens over a cache.
// Both enqueue and return; arguments are checked by the callers, who are the ops.
#pragma once

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/linear.h"

namespace mt::kernels::cuda {

// y = x w^T + bias of 1 to kMaxFewRows rows, f32, bf16 or f16.
void LaunchFewRows(const Stream& stream, const LinearForwardArgs& args);

// Stores the rows' keys and values in the caches.
void LaunchStoreKeys(const Stream& stream, const AttentionDecodeArgs& args);

// Bytes of workspace of LaunchDecodeAttention.
int64_t DecodeAttentionBytes(const AttentionDecodeArgs& args);
// Attention over the caches, which have the rows' own keys, but with one_row_each, when it stores
// them itself. Heads of up to kMostDecodeHead.
void LaunchDecodeAttention(const Stream& stream, const AttentionDecodeArgs& args);
inline constexpr int64_t kMostDecodeHead = 256;

}  // namespace mt::kernels::cuda
