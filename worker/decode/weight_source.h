// Where a decoder finds its weights: in memory of its own (decode_weights.h), or where training
// keeps them.
#pragma once

#include <string_view>

#include "kernels/core/tensor.h"
#include "worker/params/param_store.h"

namespace mt::decode {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // By name, as this rank stores it; an absent tensor where its part of the model has no such
  // parameter.
  virtual kernels::Tensor Weight(std::string_view name) const = 0;
  // A parameter together with those that are joined to it: [3h, h] for q, k, v.
  virtual kernels::Tensor Joined(std::string_view name) const = 0;
};

// Those of a rank that trains, at the step that it is at.
class TrainedWeights final : public WeightSource {
 public:
  // The store is bound, and outlives this.
  explicit TrainedWeights(const params::ParamStore* store) : store_(store) {}
  kernels::Tensor Weight(std::string_view name) const override;
  kernels::Tensor Joined(std::string_view name) const override;

 private:
  const params::ParamStore* const store_;
};

}  // namespace mt::decode
