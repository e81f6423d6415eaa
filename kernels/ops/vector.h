// Elementwise pieces over flat tensors, and the sums that parallel layers need.
#pragma once

#include <cstdint>

#include "common/base/runs.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/add_norm.h"

namespace mt::kernels {

class VectorOps {
 public:
  virtual ~VectorOps() = default;
  // to += from; equal types and counts.
  virtual void AddTo(Stream& stream, const Tensor& to, const Tensor& from) const = 0;
  // out = sum of partials in index order, accumulated in the accumulator type and rounded once.
  virtual void SumPartials(Stream& stream, const Tensor& out, const Partials& partials) const = 0;
  // Converts between any two float types, rounding to nearest even; f64 to 16 bits goes by f32.
  virtual void Cast(Stream& stream, const Tensor& to, const Tensor& from) const = 0;
  virtual void Fill(Stream& stream, const Tensor& to, double value) const = 0;
  // out [columns] (accumulator type) = or += column sums of x [rows, columns], rows in rising
  // order.
  virtual void RowSum(Stream& stream, const Tensor& x, GradMode mode, const Tensor& out) const = 0;
};

// Initial values that depend on the tensor's name and the element's global index alone.
struct FillNormalArgs {
  uint64_t key = 0;  // XXH3 of the tensor's name, seeded with training.seed
  int64_t first_index =
      0;  // global row-major index, in the logical unpadded tensor, of out's element 0
  // Element i has index first_index + numbers.At(i): rows of a part are runs of the whole's rows.
  base::Runs numbers;
  // Element i lies at place places.At(i) of out; gaps are left as they are.
  base::Runs places;
  double std = 0.02;
  Tensor out;  // [n places], any float type
};

class RandomOps {
 public:
  virtual ~RandomOps() = default;
  // x = std * N(0, 1) by Box-Muller in fp64 on one Philox call per two elements: cosine for even,
  // sine for odd indices; one rounding to fp32 (kept in fp64 under fp64), one to bf16 or fp16.
  virtual void FillNormal(Stream& stream, const FillNormalArgs& args) const = 0;
};

}  // namespace mt::kernels
