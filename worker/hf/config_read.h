// Reads config.json of Hugging Face: arbitrary bytes, as transformers 5 reads them where that is
// one reading, and refused where two versions would differ or where it asks for what is not built.
// Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/hf/family.h"

namespace mt::hf {

// What a config.json says of a model.
struct HfConfig {
  Family family = Family::kGpt2;
  // Completed (spec::CompleteJob); seq_length is the positions, at most kSeqLength. Shared, since
  // it is declared elsewhere.
  std::shared_ptr<const megatrain::v1::Model> model;
  std::optional<int64_t> eos;      // of a list the first
  std::string dtype;               // as it is written; empty: not said
  std::vector<std::string> notes;  // defaults that were taken because the file leaves them out
};

// Length of samples that an import proposes: what trains anywhere, and no property of the model.
inline constexpr int64_t kSeqLength = 2048;
// Longer texts are none that describe a model.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// kInvalidArgument: no JSON object, or fields of other types, out of range or missing;
// kFailedPrecondition: what is not built, or not one model. Names all fields at fault, and their
// values.
StatusOr<HfConfig> ParseConfig(std::string_view text);

// A model that was read, as a job has it: completed (spec::CompleteJob), with samples of its
// positions, of at most kSeqLength. kFailedPrecondition: it is none that a job can have.
StatusOr<std::shared_ptr<const megatrain::v1::Model>> CompleteModel(
    const megatrain::v1::Model& model);

// The fields in which a job's completed model is another one than the stored one that `says`
// describes, for a job that begins with those weights: "model.norm_eps: config.json has 1e-06, the
// job 1e-05". Empty: none. Not compared is what is no part of the network: sequence length,
// padding, dropout, initial values, and positions that have no table.
std::vector<std::string> ModelDifferences(const megatrain::v1::Model& stored,
                                          const megatrain::v1::Model& job,
                                          std::string_view says = "config.json");

// The name of a value of a model's enumerations as a job says it: "NORM_RMSNORM" as "rmsnorm". A
// text without an underscore stays as it is.
std::string JobWord(const std::string& value);

}  // namespace mt::hf
