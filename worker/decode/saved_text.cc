// The manifest has the job as it ran, with the type of its tokenizer but none of its files.
#include "worker/decode/saved_text.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "megatrain/v1/job.pb.h"

namespace mt::decode {
namespace {

using megatrain::v1::Data;

std::string TokenizerType(const Data& data) {
  switch (data.tokenizer().type()) {
    case Data::Tokenizer::TYPE_BYTE:
      return "byte";
    case Data::Tokenizer::TYPE_GPT2_BPE:
      return "gpt2_bpe";
    case Data::Tokenizer::TYPE_HF:
      return "hf";
    case Data::Tokenizer::TYPE_SENTENCEPIECE:
      return "sentencepiece";
    default:
      return "null";
  }
}

}  // namespace

StatusOr<std::unique_ptr<data::Tokenizer>> TokenizerOf(const SavedModel& saved,
                                                       const ReaderFlags& flags) {
  const std::string type =
      flags.tokenizer.empty() ? TokenizerType(saved.job->data()) : flags.tokenizer;
  auto tokenizer = data::MakeTokenizer({.type = type,
                                        .vocab_size = saved.config.vocab,
                                        .file = flags.tokenizer_file,
                                        .vocab = flags.vocab,
                                        .merges = flags.merges});
  if (!tokenizer.ok()) {
    return base::Annotate(tokenizer.status(),
                          "the tokenizer of the text (--tokenizer, --tokenizer-file, --vocab and "
                          "--merges name it)");
  }
  std::unique_ptr<data::Tokenizer> made = *std::move(tokenizer);
  if (made->vocab_size() > saved.config.vocab) {
    return base::FailedPrecondition(
        "the {} tokenizer has {} tokens, the model of {} has {}: it was trained with another one",
        type, made->vocab_size(), saved.folder, saved.config.vocab);
  }
  return made;
}

kernels::DType PrecisionOf(const SavedModel& saved, const ReaderFlags& flags) {
  const bool is_double = flags.precision == "auto" ? saved.config.dtype == kernels::DType::kF64
                                                   : flags.precision == "fp64";
  return is_double ? kernels::DType::kF64 : kernels::DType::kF32;
}

std::string_view PrecisionName(const SavedModel& saved, const ReaderFlags& flags) {
  return PrecisionOf(saved, flags) == kernels::DType::kF64 ? "fp64" : "fp32";
}

nlohmann::ordered_json CheckpointJson(const SavedModel& saved) {
  return {{"path", saved.folder},
          {"step", saved.manifest.step},
          {"epoch", saved.manifest.epoch},
          {"job", saved.manifest.job_name}};
}

}  // namespace mt::decode
