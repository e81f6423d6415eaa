// Joined parameters follow each other in the registry.
#include "worker/decode/weight_source.h"

#include "worker/params/registry.h"

namespace mt::decode {

using kernels::Tensor;
using params::ParamId;

Tensor TrainedWeights::Weight(std::string_view name) const {
  const auto id = store_->registry().Find(name);
  return id ? store_->Weight(*id) : Tensor{};
}

Tensor TrainedWeights::Joined(std::string_view name) const {
  const params::Registry& registry = store_->registry();
  const auto first = registry.Find(name);
  if (!first) return {};
  auto last = static_cast<int32_t>(*first);
  while (last + 1 < registry.size() && registry[ParamId{last + 1}].joined) ++last;
  return store_->WeightSpan(*first, ParamId{last});
}

}  // namespace mt::decode
