// The steps of CompleteJob, each over the whole job; faults are collected, and a step skips what
// earlier faults made meaningless. Internal to common/spec.
#pragma once

#include "common/spec/fault_list.h"
#include "common/spec/validate.h"

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
// Preset and derived sizes of the model, the vocabulary against the tokenizer; check_model.cc.
void CompleteModel(const CheckArgs& args);
void CheckData(const CheckArgs& args);
// Mesh, slots, device, precision, batch; check_layout.cc.
void CompleteLayout(const CheckArgs& args);
// Lengths, schedule, evaluation, checkpoints; check_training.cc.
void CompleteTraining(const CheckArgs& args);

// The multiples of `unit` around value, the smaller one only where positive: "24 or 32".
std::string NearestMultiples(int64_t value, int64_t unit);

}  // namespace mt::spec
