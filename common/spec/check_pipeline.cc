// The pipeline: layers of each model chunk, schedule and microbatch groups, and recomputation,
// which counts layers within a chunk.
#include <algorithm>

#include "common/base/math.h"
#include "common/layout/layer_split.h"
#include "common/spec/complete.h"
#include "common/spec/number.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using layout::LayerSplit;

// Requires sound virtual stages (see CompleteSchedule). nullopt: a fault was added here or before.
std::optional<LayerSplit> SplitLayers(const CheckArgs& args) {
  const v1::Parallel& parallel = args.job->parallel();
  const int64_t layers = args.job->model().layers();
  FaultList& faults = *args.faults;
  if (layers == 0 || !faults.Clean({"model.layers", "parallel.pipeline", "parallel.virtual_stages",
                                    "parallel.layout"})) {
    return std::nullopt;
  }
  const LayerSplit::Shape shape{
      .layers = layers,
      .stages = base::CheckedCast<int>(parallel.pipeline()),
      .virtual_stages = base::CheckedCast<int>(parallel.virtual_stages())};
  StatusOr<LayerSplit> split = LayerSplit::Create(shape, parallel.layout());
  if (split.ok()) return *std::move(split);
  if (parallel.has_layout()) {
    faults.Add("parallel.layout", base::Message(split.status()));
    return std::nullopt;
  }
  const int64_t chunks = SaturatingProduct(parallel.pipeline(), parallel.virtual_stages());
  std::string others;
  if (layers % parallel.virtual_stages() == 0) {
    others = fmt::format(", pipeline {}",
                         NearestDivisors(parallel.pipeline(), layers / parallel.virtual_stages()));
  }
  faults.Add("model.layers",
             fmt::format("{} is not a multiple of parallel.pipeline {} x virtual_stages {} = {}; "
                         "nearest: {}{}, or give parallel.layout",
                         layers, parallel.pipeline(), parallel.virtual_stages(), chunks,
                         NearestMultiples(layers, chunks), others));
  return std::nullopt;
}

// Settings that exist only with interleaving.
void CompleteInterleaving(const CheckArgs& args) {
  v1::Parallel& parallel = *args.job->mutable_parallel();
  FaultList& faults = *args.faults;
  if (parallel.pipeline() == 1) {
    faults.Add("parallel.virtual_stages",
               fmt::format("interleaving {} chunks needs 2 or more stages, but parallel.pipeline "
                           "is 1; use virtual_stages 1 or pipeline 2",
                           parallel.virtual_stages()));
  } else if (parallel.virtual_stages() == 1) {
    faults.Add("parallel.schedule",
               "interleaved needs 2 or more chunks per stage, but parallel.virtual_stages is 1; "
               "use 1f1b or virtual_stages 2");
  }
  if (!faults.Clean({"parallel.microbatch_group"})) return;
  if (!parallel.has_microbatch_group()) parallel.set_microbatch_group(parallel.pipeline());
  if (parallel.microbatch_group() < parallel.pipeline()) {
    faults.Add("parallel.microbatch_group",
               fmt::format("{} is less than parallel.pipeline {}: the first stage would wait for "
                           "its own output; nearest: {}",
                           parallel.microbatch_group(), parallel.pipeline(), parallel.pipeline()));
  }
}

void CompleteSchedule(const CheckArgs& args) {
  v1::Parallel& parallel = *args.job->mutable_parallel();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"parallel.pipeline", "parallel.virtual_stages", "parallel.schedule"})) return;
  if (!parallel.has_schedule()) {
    parallel.set_schedule(parallel.virtual_stages() > 1 ? v1::Parallel::SCHEDULE_INTERLEAVED
                                                        : v1::Parallel::SCHEDULE_1F1B);
  }
  if (parallel.schedule() == v1::Parallel::SCHEDULE_INTERLEAVED) return CompleteInterleaving(args);
  const std::string name =
      TextOf(parallel, *v1::Parallel::descriptor()->FindFieldByName("schedule"));
  if (parallel.virtual_stages() > 1) {
    faults.Add("parallel.virtual_stages",
               fmt::format("{} chunks per stage need schedule interleaved, but it is {}; use "
                           "virtual_stages 1 or schedule auto",
                           parallel.virtual_stages(), name));
  }
  if (parallel.has_microbatch_group()) {
    faults.Add("parallel.microbatch_group",
               fmt::format("is for schedule interleaved, but it is {}; leave it to auto", name));
  }
}

void CompleteRecompute(const CheckArgs& args, const std::optional<LayerSplit>& split) {
  v1::Training::Recompute& recompute = *args.job->mutable_training()->mutable_recompute();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"training.recompute.mode", "training.recompute.layers"})) return;
  if (recompute.mode() != v1::Training::Recompute::MODE_FULL) {
    if (recompute.has_method())
      faults.Add("training.recompute.method", "is for mode full; set the mode or leave it to auto");
    if (recompute.has_layers())
      faults.Add("training.recompute.layers", "is for mode full; set the mode or leave it to auto");
    return;
  }
  if (!recompute.has_method()) recompute.set_method(v1::Training::Recompute::METHOD_UNIFORM);
  if (!recompute.has_layers()) recompute.set_layers(1);
  if (!split) return;
  int64_t most = 0;
  for (const layout::ModelChunk& chunk : split->chunks()) most = std::max(most, chunk.num_layers);
  if (recompute.layers() > most) {
    faults.Add(
        "training.recompute.layers",
        fmt::format("{} is more than the {} layers of a chunk ({} layers, pipeline {} x "
                    "virtual_stages {}); at most {}",
                    recompute.layers(), most, args.job->model().layers(),
                    args.job->parallel().pipeline(), args.job->parallel().virtual_stages(), most));
  }
}

}  // namespace

void CompletePipeline(const CheckArgs& args) {
  CompleteSchedule(args);
  CompleteRecompute(args, SplitLayers(args));
}

}  // namespace mt::spec
