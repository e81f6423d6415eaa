// What a saved model needs to be read as text: its tokenizer, and the arithmetic; and how both
// verbs name the checkpoint in JSON.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "kernels/core/tensor.h"
#include "worker/data/tokenizer.h"
#include "worker/decode/checkpoint_source.h"
#include "worker/decode/reader_flags.h"

namespace megatrain::v1 {
class Data;
}

namespace mt::decode {

// The type of tokenizer that a job names, as data::TokenizerConfig has it: "byte"; "null" where it
// names none.
std::string TokenizerType(const megatrain::v1::Data& data);

// The tokenizer that the checkpoint tells, of the files that are kept beside it, unless the flags
// name one. Errors: MakeTokenizer's; kNotFound: its files are not there, and none are named;
// kFailedPrecondition: another tokenizer than the one that made the run's tokens, or more tokens
// than the model has.
StatusOr<std::unique_ptr<data::Tokenizer>> TokenizerOf(const SavedModel& saved,
                                                       const ReaderFlags& flags);

kernels::DType PrecisionOf(const SavedModel& saved, const ReaderFlags& flags);
// "fp32", "fp64", "bf16" or "fp16".
std::string_view PrecisionName(const SavedModel& saved, const ReaderFlags& flags);

// path, step, epoch, job.
nlohmann::ordered_json CheckpointJson(const SavedModel& saved);

}  // namespace mt::decode
