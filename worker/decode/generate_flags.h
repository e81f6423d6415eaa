// The flags of `mtctl generate` and of `mt-rank --generate DIR`: declared once, since the first
// starts the second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/decode/reader_flags.h"

namespace CLI {
class App;
}

namespace mt::decode {

struct GenerateFlags : ReaderFlags {
  std::vector<std::string> prompts;
  bool dash_is_stdin = true;  // the prompt "-" is what standard input has
  int64_t tokens = 64;
  int64_t samples = 1;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double repetition_penalty = 1;
  std::vector<std::string> stops;
  int64_t seed = 1234;
  bool raw = false;
  bool log_probabilities = false;
};

// Adds all but --json. `flags` must live as long as the app.
void AddGenerateFlags(CLI::App* app, GenerateFlags* flags);
// The command line that gives these flags, without the program; what has its default is left out.
std::vector<std::string> ToArguments(const GenerateFlags& flags);

}  // namespace mt::decode
