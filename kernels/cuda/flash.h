// The own attention: flash attention (Dao et al. 2022, 2023) in f32, bf16 and f16 with dropout,
// ALiBi, windows, chunks of a sequence and any head size up to 256. Readable rather than tuned,
// always deterministic: each output element is summed by one thread in one order.
#pragma once

#include "kernels/cuda/cuda_device.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

inline constexpr int64_t kLargestFlashHead = 256;

// Shared memory that a block of these kernels takes, at most.
int64_t FlashSharedBytes(const AttentionShape& shape);

void FlashForward(const Stream& stream, const AttentionForwardArgs& args);

// Scratch of FlashGrad: delta f32 [b, a, s].
int64_t FlashGradBytes(const AttentionShape& shape);
void FlashGrad(const Stream& stream, const AttentionGradArgs& args);

}  // namespace mt::kernels::cuda
