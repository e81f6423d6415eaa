// What a device can achieve: the matrix product rate stated by its maker, and the measured rate of
// a large product. Benchmarks report theirs relative to both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/ops/backend.h"

namespace mt::bench {

// Dense FLOP/s of matrix products in `dtype`, as stated by the maker of the device with this
// description (Device::Describe); 0: unknown. For bf16 and fp16: H100 and H200 SXM 989.4e12 (NVIDIA
// H200 data sheet, half of the figure with sparsity), A100 312e12; for fp32 without TF32 67e12 and
// 19.5e12.
double StatedPeakFlops(std::string_view device, kernels::DType dtype);

struct MeasuredProduct {
  int64_t size = 0;  // rows and columns of each matrix
  kernels::DType dtype = kernels::DType::kBf16;
  double flops = 0;  // per second
};

// Measures y = x w^T of square matrices of normal random numbers, called G in reports: 8192 in bf16
// on a GPU; 1024 in fp32 on the CPU, where the larger one would take minutes. Blocks for about
// `seconds`; takes 0.4 GiB of a GPU. kResourceExhausted if the device has no room.
StatusOr<MeasuredProduct> MeasureProduct(kernels::Backend& backend, double seconds);

}  // namespace mt::bench
