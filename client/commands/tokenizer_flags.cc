// --tokenizer takes a type, or right away the file of one: a name with a dot or a slash is no type.
#include "client/commands/tokenizer_flags.h"

#include <CLI/CLI.hpp>

#include "worker/data/tokenizer.h"

namespace mt::client {

void AddTokenizerFiles(CLI::App* command, data::TokenizerConfig* config, const std::string& when) {
  command->add_option("--tokenizer", config->type,
                      when +
                          "byte, ids (or null), gpt2_bpe, hf, sentencepiece; or the path of a "
                          "tokenizer.json or SentencePiece .model");
  command->add_option("--tokenizer-file", config->file,
                      when + "tokenizer.json (hf) or model (sentencepiece)");
  command->add_option("--vocab", config->vocab, when + "vocab.json (gpt2_bpe)");
  command->add_option("--merges", config->merges, when + "merges.txt (gpt2_bpe)");
}

void AddTokenizerFlags(CLI::App* command, data::TokenizerConfig* config) {
  AddTokenizerFiles(command, config);
  command->add_option("--vocab-size", config->vocab_size,
                      "Number of ids (ids); the last is end-of-document");
  command->add_option("--eod", config->eod,
                      "End-of-document token of gpt2_bpe and hf (default: <|endoftext|>, "
                      "<|end_of_text|>, </s>, ..., the first that there is)");
}

void SettleTokenizerFlags(const std::string& otherwise, data::TokenizerConfig* config) {
  if (config->file.empty() && config->type.find_first_of("./") != std::string::npos) {
    config->file = config->type;
    config->type.clear();
  }
  if (!config->type.empty()) return;
  if (config->file.ends_with(".model")) {
    config->type = "sentencepiece";
  } else if (!config->file.empty()) {
    config->type = "hf";
  } else {
    config->type = config->vocab.empty() && config->merges.empty() ? otherwise : "gpt2_bpe";
  }
}

}  // namespace mt::client
