#include "worker/params/init.h"

#include "common/base/ids.h"

namespace mt::params {
namespace {

// The rows that exist in the logical tensor: the first elements of a padded one.
kernels::Tensor LogicalElements(const kernels::Tensor& stored, const ParamSpec& spec) {
  return ParamStore::Cut(stored.Reshaped({stored.NumElements()}),
                         {.begin = 0, .count = spec.shape.NumElements()});
}

}  // namespace

uint64_t InitKey(std::string_view name, int64_t seed) {
  return base::Hash64(name, static_cast<uint64_t>(seed));
}

void InitializeParams(kernels::Stream& stream, const InitArgs& args, const ParamStore& store) {
  const Registry& registry = store.registry();
  for (int32_t i = 0; i < static_cast<int32_t>(registry.size()); ++i) {
    const ParamSpec& spec = registry[ParamId{i}];
    const kernels::Tensor master = LogicalElements(store.Master(ParamId{i}), spec);
    switch (spec.init) {
      case InitKind::kNormal:
        args.random->FillNormal(stream, {.key = InitKey(spec.name, args.seed),
                                         .first_index = 0,
                                         .std = spec.std,
                                         .out = master});
        break;
      case InitKind::kZero:
        args.vector->Fill(stream, master, 0.0);
        break;
      case InitKind::kOne:
        args.vector->Fill(stream, master, 1.0);
        break;
    }
  }
  if (store.has_model_copy()) args.vector->Cast(stream, store.weights(), store.master());
}

}  // namespace mt::params
