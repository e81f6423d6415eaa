// The steps of CompleteJob, each over the whole job; faults are collected, and a step skips what
// earlier faults made meaningless. Internal to common/spec.
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

// CompleteJob where parsing has already found `faults`; returns both.
[[nodiscard]] Faults CompleteAfter(Faults faults, const ValidateContext& context,
                                   megatrain::v1::JobSpec* job);

struct CheckArgs {
  const ValidateContext& context;
  megatrain::v1::JobSpec* job;
  FaultList* faults;
};

// Ranges, forms, paths, features of what is set; in check_rules.cc.
void CheckRules(const CheckArgs& args);
// The model's preset, before the defaults; check_model.cc.
void FillFromPreset(const CheckArgs& args);
// Derived sizes of the model, the vocabulary against the tokenizer; check_model.cc.
void CompleteModel(const CheckArgs& args);
void CheckData(const CheckArgs& args);
// Rotary positions, window; after the sizes of the model; check_variants.cc.
void CompleteVariants(const CheckArgs& args);
// Mesh, slots, what tensor and context parallelism cut; check_layout.cc.
void CompleteLayout(const CheckArgs& args);
bool MeshIsClean(const FaultList& faults);
// Schedule, layers of each chunk, recomputation; after the mesh; check_pipeline.cc.
void CompletePipeline(const CheckArgs& args);
// Device, precision, loss scale, zero_stage; check_precision.cc.
void CompleteDevice(const CheckArgs& args);
// What the device that the job runs on (if that is known) cannot do of it; check_precision.cc.
void CheckForDevice(const CheckArgs& args);
void CompleteZeroStage(bool gpu, megatrain::v1::JobSpec* job);
// Samples of a step; after the mesh and the pipeline; check_batch.cc.
void CompleteBatch(const CheckArgs& args);
// Kind bench: its length, and what it has no use for; before what asks for the length; bench.cc.
void CompleteBench(const CheckArgs& args);
// Lengths, evaluation, checkpoints; check_training.cc.
void CompleteTraining(const CheckArgs& args);
// Learning rate and weight decay; check_optimizer.cc.
void CompleteOptimizer(const CheckArgs& args, bool length_is_sound);

// The multiples of `unit` around value, the smaller one only where positive: "24 or 32".
std::string NearestMultiples(int64_t value, int64_t unit);
// The divisors of `whole` around value, those that exist: "2 or 4"; value at least 1.
std::string NearestDivisors(int64_t value, int64_t whole);
// A fault on each of these scalar fields of `section` that holds another value than its default.
void RefuseOtherThanDefault(const google::protobuf::Message& section, std::string_view path,
                            std::initializer_list<std::string_view> names, std::string_view why,
                            FaultList* faults);

}  // namespace mt::spec
