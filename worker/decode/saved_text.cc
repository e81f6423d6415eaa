// The manifest has the job as it ran, with the type of its tokenizer, and by facts the digest of
// the files that lie beside it.
#include "worker/decode/saved_text.h"

#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/inspect/saved_tokenizer.h"

namespace mt::decode {
namespace {

using megatrain::v1::Data;

// What the flags name, and else what is kept beside the checkpoint.
StatusOr<data::TokenizerConfig> ConfigOf(const SavedModel& saved, const ReaderFlags& flags) {
  const auto known = checkpoint::TokenizerOf(saved.manifest);
  const bool named = !flags.tokenizer.empty() || !flags.tokenizer_file.empty() ||
                     !flags.vocab.empty() || !flags.merges.empty();
  if (known && !named) {
    const std::string directory = std::filesystem::path(saved.folder).parent_path().string();
    const auto kept = data::FindKeptTokenizer(known->type, known->digest, directory);
    if (kept) return *kept;
    return base::NotFound(
        "the {} tokenizer of {} (digest {}) is not beside it, in {}: name its files ({})",
        known->type, saved.folder, known->digest, checkpoint::FolderName(*known), flags.named_by);
  }
  std::string type = flags.tokenizer;
  if (type.empty()) type = known ? known->type : TokenizerType(saved.job->data());
  return data::TokenizerConfig{.type = std::move(type),
                               .vocab_size = saved.config.vocab,
                               .file = flags.tokenizer_file,
                               .vocab = flags.vocab,
                               .merges = flags.merges};
}

// Ids (null) are taken by any model.
Status CheckSame(const SavedModel& saved, const data::Tokenizer& tokenizer) {
  const auto known = checkpoint::TokenizerOf(saved.manifest);
  if (!known || tokenizer.name() == "null") return OkStatus();
  if (tokenizer.name() == known->type && tokenizer.digest() == known->digest) return OkStatus();
  return base::FailedPrecondition(
      "{} was trained on tokens of the {} tokenizer with digest {}; the one that is named is {}",
      saved.folder, known->type, known->digest,
      data::RecordText(data::RecordOfTokenizer(tokenizer)));
}

}  // namespace

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

StatusOr<std::unique_ptr<data::Tokenizer>> TokenizerOf(const SavedModel& saved,
                                                       const ReaderFlags& flags) {
  ASSIGN_OR_RETURN(const data::TokenizerConfig config, ConfigOf(saved, flags));
  auto tokenizer = data::MakeTokenizer(config);
  if (!tokenizer.ok()) {
    return base::Annotate(tokenizer.status(),
                          fmt::format("the tokenizer of the text ({})", flags.named_by));
  }
  std::unique_ptr<data::Tokenizer> made = *std::move(tokenizer);
  RETURN_IF_ERROR(CheckSame(saved, *made));
  if (made->vocab_size() > saved.config.vocab) {
    return base::FailedPrecondition(
        "the {} tokenizer has {} tokens, the model of {} has {}: it was trained with another one",
        made->name(), made->vocab_size(), saved.folder, saved.config.vocab);
  }
  return made;
}

kernels::DType PrecisionOf(const SavedModel& saved, const ReaderFlags& flags) {
  using kernels::DType;
  if (flags.precision == "fp64") return DType::kF64;
  if (flags.precision == "bf16") return DType::kBf16;
  if (flags.precision == "fp16") return DType::kF16;
  if (flags.precision == "fp32") return DType::kF32;
  const DType trained = saved.config.dtype;
  if (flags.device == "gpu") return trained == DType::kF64 ? DType::kF32 : trained;
  return SizeOf(trained) == 2 ? DType::kF32 : trained;
}

std::string_view PrecisionName(const SavedModel& saved, const ReaderFlags& flags) {
  switch (PrecisionOf(saved, flags)) {
    case kernels::DType::kF64:
      return "fp64";
    case kernels::DType::kBf16:
      return "bf16";
    case kernels::DType::kF16:
      return "fp16";
    default:
      return "fp32";
  }
}

nlohmann::ordered_json CheckpointJson(const SavedModel& saved) {
  return {{"path", saved.folder},
          {"step", saved.manifest.step},
          {"epoch", saved.manifest.epoch},
          {"job", saved.manifest.job_name}};
}

}  // namespace mt::decode
