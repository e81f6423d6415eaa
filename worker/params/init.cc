// Draws each box of a parameter that this rank holds from one Philox stream per parameter, indexed
// by the element's position in the logical tensor (kernels/core/random.h). Weights and the master's
// parts are drawn separately and agree because both are functions of that index.
#include "worker/params/init.h"

#include "common/base/ids.h"
#include "worker/params/state_parts.h"

namespace mt::params {
namespace {

using kernels::Tensor;

// A rectangle of the logical tensor, and the storage of its elements.
struct Box {
  std::array<int64_t, 2> begin;
  kernels::Shape shape;
  base::Runs places;
  Tensor out;  // flat, from the box's first element to its last, gaps included
};

// Draws N(0, std^2) for the logical elements of the box.
void FillNormalBox(kernels::Stream& stream, const InitArgs& args, const ParamSpec& spec,
                   const Box& box) {
  const int64_t logical_columns = spec.shape.rank() == 2 ? spec.shape[1] : 1;
  const int64_t columns = box.shape.rank() == 2 ? box.shape[1] : 1;
  args.random->FillNormal(stream, {.key = InitKey(spec.name, args.seed),
                                   .first_index = box.begin[0] * logical_columns + box.begin[1],
                                   .numbers = {.length = columns, .stride = logical_columns},
                                   .places = box.places,
                                   .std = spec.std,
                                   .out = box.out});
}

void FillBox(kernels::Stream& stream, const InitArgs& args, const ParamSpec& spec, const Box& box) {
  if (box.out.NumElements() == 0) return;  // the rank holds only padding rows
  switch (spec.init) {
    case InitKind::kNormal:
      FillNormalBox(stream, args, spec, box);
      break;
    case InitKind::kZero:
      args.vector->Fill(stream, box.out, 0.0);
      break;
    case InitKind::kOne:
      args.vector->Fill(stream, box.out, 1.0);
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
    const base::Runs places = spec.Places();
    const Tensor stored = store.Weight(id);
    const Tensor weight = ParamStore::Cut(stored.Reshaped({stored.NumElements()}),
                                          {0, places.Span(held.NumElements())});
    FillBox(stream, args, spec,
            {.begin = spec.begin, .shape = held, .places = places, .out = weight});
    if (!store.has_model_copy()) continue;
    for (const StatePart& part : StateParts(store, id, PartsOf::kUpdatedState)) {
      FillBox(
          stream, args, spec,
          {.begin = part.begin, .shape = part.shape, .places = part.places, .out = part.master});
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
