#include "worker/params/init.h"

#include "common/base/ids.h"
#include "worker/params/state_parts.h"

namespace mt::params {
namespace {

using kernels::Tensor;

// Normal numbers of the logical elements behind `out` [rows, columns], which begins at `begin`.
void FillNormalPart(kernels::Stream& stream, const InitArgs& args, const ParamSpec& spec,
                    const std::array<int64_t, 2>& begin, const Tensor& out) {
  const int64_t logical_columns = spec.shape.rank() == 2 ? spec.shape[1] : 1;
  const int64_t columns = out.shape.rank() == 2 ? out.shape[1] : 1;
  // Whole rows follow each other in the logical tensor too; parts of rows go one by one.
  const int64_t rows_per_call = columns == logical_columns ? out.shape[0] : 1;
  for (int64_t row = 0; row < out.shape[0]; row += rows_per_call) {
    const Tensor piece = ParamStore::Cut(out.Reshaped({out.NumElements()}),
                                         {row * columns, rows_per_call * columns});
    args.random->FillNormal(stream, {.key = InitKey(spec.name, args.seed),
                                     .first_index = (begin[0] + row) * logical_columns + begin[1],
                                     .std = spec.std,
                                     .out = piece});
  }
}

void FillPart(kernels::Stream& stream, const InitArgs& args, const ParamSpec& spec,
              const std::array<int64_t, 2>& begin, const Tensor& out) {
  if (out.NumElements() == 0) return;  // only padded rows
  switch (spec.init) {
    case InitKind::kNormal:
      FillNormalPart(stream, args, spec, begin, out);
      break;
    case InitKind::kZero:
      args.vector->Fill(stream, out, 0.0);
      break;
    case InitKind::kOne:
      args.vector->Fill(stream, out, 1.0);
      break;
  }
}

}  // namespace

uint64_t InitKey(std::string_view name, int64_t seed) {
  return base::Hash64(name, static_cast<uint64_t>(seed));
}

void InitializeParams(kernels::Stream& stream, const InitArgs& args, const ParamStore& store) {
  const Registry& registry = store.registry();
  for (int32_t i = 0; i < static_cast<int32_t>(registry.size()); ++i) {
    const ParamId id{i};
    const ParamSpec& spec = registry[id];
    const kernels::Shape held = spec.Held();
    const Tensor stored = store.Weight(id);
    const Tensor weight =
        ParamStore::Cut(stored.Reshaped({stored.NumElements()}), {0, held.NumElements()});
    FillPart(stream, args, spec, spec.begin, weight.Reshaped(held));
    if (!store.has_model_copy()) continue;
    for (const StatePart& part : StateParts(store, id, PartsOf::kUpdatedState)) {
      FillPart(stream, args, spec, part.begin, part.master);
    }
  }
}

void RoundMaster(kernels::Stream& stream, const kernels::VectorOps& vector,
                 const ParamStore& store) {
  if (!store.has_model_copy()) return;
  for (int b = 0; b < store.layout().num_buckets(); ++b) {
    const ParamStore::State state = store.StateOf(b);
    vector.Cast(stream, state.model_copy, state.master);
  }
}

}  // namespace mt::params
