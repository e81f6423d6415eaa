// The passes of CompleteJob, each over the whole job. Faults accumulate, and a pass skips whatever
// an earlier fault made meaningless. Internal to common/spec. Pure; thread-safe.
#pragma once

#include "common/spec/fault_list.h"
#include "common/spec/validate.h"

namespace google::protobuf {
class Message;
}
namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

// CompleteJob for a job in which parsing has already found `faults`; returns those of both.
[[nodiscard]] Faults CompleteAfter(Faults faults, const ValidateContext& context,
                                   megatrain::v1::JobSpec* job);

// Arguments of every pass; all are borrowed.
struct CheckArgs {
  const ValidateContext& context;
  megatrain::v1::JobSpec* job;
  FaultList* faults;
};

// Conditions on each set field by itself: range, form, path, feature. In check_rules.cc.
void CheckRules(const CheckArgs& args);
// Refuses sections and fields that jobs of this kind do not have (job_kind.h); runs before the
// defaults. In check_reader.cc.
void RefuseForeignFields(const CheckArgs& args);
// All that is asked of a reader (JobKind::reads), in place of the passes below. In check_reader.cc.
void CompleteReader(const CheckArgs& args);
// As CheckForDevice, of a reader. In check_reader.cc.
void CheckReaderForDevice(const CheckArgs& args);
// Applies the model's preset; runs before the defaults. In check_model.cc.
void FillFromPreset(const CheckArgs& args);
// Derives the model's sizes, and checks the vocabulary against the tokenizer. In check_model.cc.
void CompleteModel(const CheckArgs& args);
// Checks the data sets and their split. In check_model.cc.
void CheckData(const CheckArgs& args);
// Checks that the tokenizer has the files that its type is made of. In check_model.cc.
void CheckTokenizer(const CheckArgs& args);
// Rotary positions and window; needs the model's sizes. In check_variants.cc.
void CompleteVariants(const CheckArgs& args);
// Derives the mesh and slots, and checks divisibility under tensor and context parallelism. In
// check_layout.cc.
void CompleteLayout(const CheckArgs& args);
// True when no fault lies on a size of the mesh.
bool MeshIsClean(const FaultList& faults);
// Schedule, layers of each chunk, recomputation; needs the mesh. In check_pipeline.cc.
void CompletePipeline(const CheckArgs& args);
// Device, precision, loss scale, zero_stage. In check_precision.cc.
void CompleteDevice(const CheckArgs& args);
// Refuses what the job's device, where it is known, cannot do. In check_precision.cc.
void CheckForDevice(const CheckArgs& args);
// Refuses placement.threads_per_rank of a job on a GPU. In check_precision.cc.
void RefuseThreadsOnGpu(const CheckArgs& args);
// Sets zero_stage where it is unset; `gpu`: the job runs on GPU slots. In check_precision.cc.
void CompleteZeroStage(bool gpu, megatrain::v1::JobSpec* job);
// Batch size of a step; needs the mesh and the pipeline. In check_batch.cc.
void CompleteBatch(const CheckArgs& args);
// Kind bench: sets the length and refuses settings without meaning; runs before every pass that
// reads the length. In check_bench.cc.
void CompleteBench(const CheckArgs& args);
// Length of the run, evaluation, checkpoints. In check_training.cc.
void CompleteTraining(const CheckArgs& args);
// Refuses a keep_every that no save can hit. Of new jobs only (ValidateContext::stored). In
// check_training.cc.
void CheckKeepEvery(const CheckArgs& args);
// Learning rate and weight decay. In check_optimizer.cc.
void CompleteOptimizer(const CheckArgs& args, bool length_is_sound);

// The multiples of `unit` next to value, without the smaller one where it is not positive: "24 or
// 32".
std::string NearestMultiples(int64_t value, int64_t unit);
// The divisors of `whole` next to value, as far as they exist: "2 or 4". value is at least 1.
std::string NearestDivisors(int64_t value, int64_t whole);
// Adds a fault for each of the scalar fields `names` of `section` that is set to a value other than
// its default; `why` follows the value in the message.
void RefuseOtherThanDefault(const google::protobuf::Message& section, std::string_view path,
                            std::initializer_list<std::string_view> names, std::string_view why,
                            FaultList* faults);

}  // namespace mt::spec
