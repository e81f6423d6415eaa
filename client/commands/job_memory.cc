// The schedule says how many activations a stage holds at once; the formulas say the rest.
#include "client/commands/job_memory.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "common/spec/parse.h"
#include "common/spec/roots.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/parallel/schedule/job_request.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

// Microbatches of the largest step, which needs at least as many slots as any smaller one.
int64_t MostMicrobatches(const v1::JobSpec& job) {
  int64_t batch = 0;
  const spec::BatchRamp ramp = spec::RampOf(job);
  for (const spec::BatchPhase& phase : ramp.phases()) batch = std::max(batch, phase.batch);
  return spec::Microbatches(job, batch);
}

StatusOr<checkpoint::CheckpointId> ToRead(const checkpoint::Place& place, const v1::Read& read) {
  if (place.id) return *place.id;
  if (read.has_step()) return checkpoint::FindByName(place.directory, std::to_string(read.step()));
  if (read.has_tag()) return checkpoint::FindByTag(place.directory, read.tag());
  ASSIGN_OR_RETURN(const auto newest, checkpoint::FindNewest(place.directory));
  if (newest) return *newest;
  return base::NotFound("{} has no complete checkpoint", place.directory);
}

}  // namespace

StatusOr<spec::RankMemory> MemoryOfReaderBelow(const std::string& root, const v1::JobSpec& reader) {
  ASSIGN_OR_RETURN(
      const std::string path,
      spec::ResolveBelow(std::filesystem::absolute(root).string(), reader.read().checkpoint()));
  ASSIGN_OR_RETURN(const checkpoint::Place place, checkpoint::FindPlace(path));
  ASSIGN_OR_RETURN(const checkpoint::CheckpointId id, ToRead(place, reader.read()));
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                   checkpoint::ReadManifest(place.directory, id));
  v1::JobSpec trained;
  RETURN_IF_ERROR(
      spec::ToStatus(spec::LoadJob(manifest.spec_json, {}, {.stored = true}, &trained)));
  return spec::MemoryOfReader(reader, trained);
}

StatusOr<std::vector<spec::RankMemory>> MemoryByStage(v1::JobSpec* job) {
  if (!spec::KindOf(*job).has_steps) {
    return base::InvalidArgument(
        "a job of kind {} keeps the weights of the checkpoint that it reads: name the folder here "
        "below which that lies by --checkpoint-root",
        spec::KindOf(*job).name);
  }
  const bool on_gpu = job->placement().device() == v1::Placement::DEVICE_GPU;
  const spec::Faults faults = spec::ResolveForSlots({.gpu = on_gpu}, job);
  if (!faults.empty()) return spec::ToStatus(faults);
  ASSIGN_OR_RETURN(
      const parallel::Schedule schedule,
      parallel::GenerateSchedule(parallel::ScheduleRequestOf(*job, MostMicrobatches(*job))));
  std::vector<spec::RankMemory> stages;
  stages.reserve(schedule.slots.size());
  for (int stage = 0; stage < schedule.stages; ++stage) {
    stages.push_back(spec::MemoryOf(*job, stage, schedule.slots[static_cast<size_t>(stage)]));
  }
  return stages;
}

spec::RankMemory MemoryOfAll(const v1::JobSpec& job, const std::vector<spec::RankMemory>& stages) {
  const int64_t ranks = spec::WorldSize(job) / static_cast<int64_t>(stages.size());
  spec::RankMemory all;
  for (const spec::RankMemory& memory : stages) {
    all.parameters += ranks * memory.parameters;
    all.weights += ranks * memory.weights;
    all.gradients += ranks * memory.gradients;
    all.optimizer += ranks * memory.optimizer;
    all.activations += ranks * memory.activations;
    all.prompts += job.parallel().tensor() * memory.prompts;
    all.gathered_inputs += ranks * memory.gathered_inputs;
    all.tensor_sums += ranks * memory.tensor_sums;
    all.save_copy += ranks * memory.save_copy;
  }
  return all;
}

}  // namespace mt::client
