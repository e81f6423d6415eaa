// The custom attention kernels: FlashAttention (Dao et al. 2022; Dao 2023) in f32, bf16 and f16
// with dropout, ALiBi, windows, chunks of a sequence and any head size up to 256. Readable rather
// than tuned, and always deterministic: one thread adds up each output element, in one order.
#pragma once

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

inline constexpr int64_t kLargestFlashHead = 256;

// Returns the most shared memory, in bytes, that a thread block of these kernels uses for this
// shape.
int64_t FlashSharedBytes(const AttentionShape& shape);

// Enqueues the forward kernel. Sizes must fit 32 bits; the caller has checked the shape and the
// shared memory.
void FlashForward(const Stream& stream, const AttentionForwardArgs& args);

// Bytes of FlashGrad's workspace: delta, f32 [b, a, s].
int64_t FlashGradBytes(const AttentionShape& shape);
void FlashGrad(const Stream& stream, const AttentionGradArgs& args);

}  // namespace mt::kernels::cuda
