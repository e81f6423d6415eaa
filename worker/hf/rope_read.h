// RoPE in a config.json, in its old and its new spelling. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "worker/hf/config_fields.h"
#include "worker/hf/family.h"

namespace mt::hf {

// What is read of it, before it becomes fields of a job.
struct RopeFields {
  double base = 10000;
  double percent = 1;
  bool linear = false, llama3 = false;  // else not scaled
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
};

// As transformers 5 reads it: rope_scaling, if neither null nor empty, replaces rope_parameters as
// a whole; the base is that of the dict that won, else the one at top level, else 10000; rope_type
// goes before type. What is said twice and differs is refused, since other readers take the other
// value. Faults go to `fields`.
RopeFields ReadRope(Family family, const nlohmann::json& object, ConfigFields* fields);

}  // namespace mt::hf
