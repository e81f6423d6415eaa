// transformers 5 takes the rules of the model's class instead of tokenizer.json's unless
// tokenizer_config.json names PreTrainedTokenizerFast.
#include "worker/hf/tokenizer_texts.h"

#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/gpt2_files.h"
#include "worker/data/tokenizer/hf_file.h"

namespace mt::hf {
namespace {

// A token for each byte, and the end of documents: how a text is split has no part in it.
std::string ByteFileText(const std::string& eod) {
  data::BpeParts parts;
  for (int byte = 0; byte < 256; ++byte)
    parts.tables.tokens.emplace_back(1, static_cast<char>(byte));
  parts.tables.tokens.emplace_back();
  parts.patterns = {std::string(data::kGpt2Pattern)};
  parts.named.push_back({.text = eod, .id = 256});
  return data::HfFileText(parts);
}

StatusOr<std::string> Gpt2FileText(const data::TokenizerConfig& config) {
  ASSIGN_OR_RETURN(const std::string vocab, base::ReadFile(config.vocab, config.open));
  ASSIGN_OR_RETURN(const std::string merges, base::ReadFile(config.merges, config.open));
  ASSIGN_OR_RETURN(const data::BpeParts parts, data::ParseGpt2Files(vocab, merges));
  return data::HfFileText(parts);
}

std::string TokenizerConfigText(const std::string& eos) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false}};
  if (!eos.empty()) {
    config["bos_token"] = eos;
    config["eos_token"] = eos;
  }
  return config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

StatusOr<TokenizerTexts> TokenizerTextsOf(const data::TokenizerConfig& config) {
  const std::string_view type = data::TypeOfName(config.type);
  if (type == "sentencepiece") {
    return base::FailedPrecondition(
        "no tokenizer.json is made of a SentencePiece model, and transformers reads other ids from "
        "the bare model: give the tokenizer.json of the same vocabulary (--tokenizer hf "
        "--tokenizer-file FILE), or export without one (--tokenizer null)");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Tokenizer> tokenizer, data::MakeTokenizer(config));
  TokenizerTexts out{.vocab_size = tokenizer->vocab_size(), .digest = tokenizer->digest()};
  std::string eod;
  if (tokenizer->eod() != data::kNoEod) {
    out.eos = tokenizer->eod();
    const int32_t id = tokenizer->eod();
    ASSIGN_OR_RETURN(eod, tokenizer->Decode({&id, 1}));
  }
  if (type == "null") return out;
  std::string file;
  if (type == "byte") {
    file = ByteFileText(eod);
  } else if (type == "gpt2_bpe") {
    ASSIGN_OR_RETURN(file, Gpt2FileText(config));
  } else {
    ASSIGN_OR_RETURN(file, base::ReadFile(config.file, config.open));
  }
  out.texts["tokenizer.json"] = std::move(file);
  out.texts["tokenizer_config.json"] = TokenizerConfigText(eod);
  return out;
}

}  // namespace mt::hf
