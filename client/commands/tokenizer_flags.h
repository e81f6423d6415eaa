// The flags by which a verb is told a tokenizer.
#pragma once

#include <string>

#include "common/base/status.h"

namespace CLI {
class App;
}
namespace mt::data {
struct TokenizerConfig;
}

namespace mt::client {

// Adds --tokenizer, --tokenizer-file, --vocab and --merges, as below. `when` opens what is said of
// each: "Of --format hf: ".
void AddTokenizerFiles(CLI::App* command, data::TokenizerConfig* config,
                       const std::string& when = "");

// Adds --tokenizer, --tokenizer-file, --vocab, --merges, --vocab-size and --eod to `command`; they
// fill `config`, which must live as long as the command.
void AddTokenizerFlags(CLI::App* command, data::TokenizerConfig* config);

// Sets a type that was not given: from the files that were, else `otherwise`; and the file of the
// shorter --tokenizer FILE.
void SettleTokenizerFlags(const std::string& otherwise, data::TokenizerConfig* config);

}  // namespace mt::client
