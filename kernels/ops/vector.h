// Elementwise ops over flat tensors, the sums that parallel layers need, and random initial values.
// Counts of elements must agree; shapes need not.
#pragma once

#include <cstdint>

#include "common/base/runs.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/add_norm.h"

namespace mt::kernels {

// Every call enqueues work on `stream` and returns; it aborts (CHECK) on inconsistent counts or
// dtypes.
class VectorOps {
 public:
  virtual ~VectorOps() = default;
  // to += from, for equal dtypes and counts: floats, i32, i64. 16-bit sums are computed in fp32 and
  // rounded once.
  virtual void AddTo(Stream& stream, const Tensor& to, const Tensor& from) const = 0;
  // out = sum of 1 to kMaxPartials partials in index order, accumulated in the accumulator type and
  // rounded once. out may be a partial.
  virtual void SumPartials(Stream& stream, const Tensor& out, const Partials& partials) const = 0;
  // Converts between any two float types, rounding to nearest even; f64 to a 16-bit type goes
  // through f32.
  virtual void Cast(Stream& stream, const Tensor& to, const Tensor& from) const = 0;
  // Sets every element to `value`, converted to the tensor's dtype (any).
  virtual void Fill(Stream& stream, const Tensor& to, double value) const = 0;
  // out [columns] (accumulator type) = or += column sums of x [rows, columns], in a fixed order; on
  // the CPU in ascending rows.
  virtual void RowSum(Stream& stream, const Tensor& x, GradMode mode, const Tensor& out) const = 0;
};

// Random initial values of a tensor or of a part of it. Each depends only on the tensor's name, the
// seed and the element's global index, so they are the same under every sharding and padding.
struct FillNormalArgs {
  uint64_t key = 0;  // XXH3 hash of the tensor's name, seeded with training.seed
  // Global row-major index, in the logical unpadded tensor, of out's element 0.
  int64_t first_index = 0;
  // Element i has the global index first_index + numbers.At(i): the rows of a shard are runs of the
  // whole tensor's rows.
  base::Runs numbers;
  // Element i is stored at out[places.At(i)]; gaps (padding) are not written.
  base::Runs places;
  double std = 0.02;
  Tensor out;  // [places], any float type that the backend computes in
};

// FillNormal enqueues work on `stream` and returns.
class RandomOps {
 public:
  virtual ~RandomOps() = default;
  // x = std * N(0, 1) by the Box-Muller transform (Box & Muller 1958) in fp64, from one Philox call
  // per two elements: the cosine for even indices, the sine for odd ones. Values are rounded once
  // to f32 (kept in fp64 under f64) and once more to bf16 or f16.
  virtual void FillNormal(Stream& stream, const FillNormalArgs& args) const = 0;
};

}  // namespace mt::kernels
