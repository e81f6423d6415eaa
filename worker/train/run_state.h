// The state of a run in a checkpoint: the tensor slices that this rank saves and loads, and the
// numbers and facts of the manifest. Names are persistent (worker/checkpoint/FORMAT.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/step_scalars.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/loader.h"
#include "worker/checkpoint/writer.h"
#include "worker/data/index_record.h"
#include "worker/parallel/bucket_route.h"
#include "worker/params/param_store.h"

namespace mt::train {

// The fact that has a course's batch sizes (spec::SizesText) where they are not its job's own.
inline constexpr char kSizesFact[] = "batch_sizes";

// Weights (the master copy) and the optimizer's moments of this rank's parameters, as boxes of the
// logical tensors. Over the job's ranks the saved slices cover every element exactly once: a
// replica saves its slice of every bucket that it counts (BucketRoute::counted), whatever the ZeRO
// stage. A rank loads all that it keeps, copies included. Slices point into the store: device
// memory. `routes`: parallel::RoutesOf the store.
std::vector<checkpoint::SliceToSave> SlicesToSave(const params::ParamStore& store,
                                                  std::span<const parallel::BucketRoute> routes);
std::vector<checkpoint::SliceToLoad> SlicesToLoad(const params::ParamStore& store);

// The scalar block, bit for bit.
void PutScalars(const kernels::StepScalars& scalars, checkpoint::Manifest* manifest);
// kDataLoss names a number that is missing.
StatusOr<kernels::StepScalars> GetScalars(const checkpoint::Manifest& manifest);

// Sample order of a split, as facts "data.<split>.<field>".
void PutIndexRecord(const data::IndexRecord& record, checkpoint::Manifest* manifest);
// How many samples of each data set of a split's blend the run has consumed, for people and other
// programs; nothing where `by_member` is empty.
void PutConsumed(std::string_view split_name, const std::vector<int64_t>& by_member,
                 checkpoint::Manifest* manifest);
StatusOr<data::IndexRecord> GetIndexRecord(const checkpoint::Manifest& manifest,
                                           const std::string& split_name);

}  // namespace mt::train
