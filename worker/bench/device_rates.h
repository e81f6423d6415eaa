// What a device could do: the rate that its maker states, and the rate of a large product,
// measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace mt::bench {

// Dense FLOP/s of matrix products that the maker states for the device of this description
// (Device::Describe) in this type; 0: not known. Half types of H100 and H200 (SXM) 989.4e12 (NVIDIA
// H200 data sheet: half of the figure with sparsity), of A100 312e12; fp32 without TF32 67e12 and
// 19.5e12.
double StatedPeakFlops(std::string_view device, kernels::DType dtype);

struct MeasuredProduct {
  int64_t size = 0;  // of each side
  kernels::DType dtype = kernels::DType::kBf16;
  double flops = 0;  // per second
};

// G: y = x w^T of square matrices of normal random numbers, 8192 in bf16 on a GPU; on the CPU,
// where that would take minutes, 1024 in fp32. For about `seconds`; takes 0.4 GiB of a GPU. Blocks.
// kResourceExhausted where the device has no room for it.
StatusOr<MeasuredProduct> MeasureProduct(kernels::Backend& backend, double seconds);

}  // namespace mt::bench
