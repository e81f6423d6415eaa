// The job from which the tests start, and shorthands for the public functions.
#pragma once

#include <string>
#include <vector>

#include "common/spec/fault.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {

inline constexpr std::string_view kJob = R"(
name: demo
model: {layers: 2, hidden_size: 64, heads: 4, seq_length: 32}
data: {path: [text_document], tokenizer: {type: byte}}
parallel: {data: 2}
training: {micro_batch_size: 4, global_batch_size: 16, train_iters: 100}
optimizer: {lr: 1e-3, warmup: 10}
)";

struct Loaded {
  megatrain::v1::JobSpec job;
  Faults faults;
};

// kJob with overrides, parsed and completed.
inline Loaded Load(const std::vector<std::string>& overrides = {},
                   const ValidateContext& context = {}) {
  Loaded out;
  out.faults = LoadJob(kJob, overrides, context, &out.job);
  return out;
}

// The same, resolved for CPU slots.
inline Loaded LoadOnCpu(const std::vector<std::string>& overrides = {}) {
  Loaded out = Load(overrides);
  if (out.faults.empty()) out.faults = ResolveForSlots({}, &out.job);
  return out;
}

// "path: message" for every fault of kJob with overrides, one per line.
inline std::string FaultsOf(const std::vector<std::string>& overrides,
                            const ValidateContext& context = {}) {
  return FormatFaults(Load(overrides, context).faults);
}

}  // namespace mt::spec
