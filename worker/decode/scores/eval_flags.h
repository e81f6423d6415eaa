// The flags of `mtctl eval` and of `mt-rank --eval DIR`: declared once, since the first starts the
// second.
#pragma once

#include <string>
#include <vector>

#include "worker/decode/reader_flags.h"

namespace mt::decode {

struct EvalFlags : ReaderFlags {
  std::string tasks;  // path of the task file
};

// Adds all but --json. `flags` must live as long as the app.
void AddEvalFlags(CLI::App* app, EvalFlags* flags);
// The command line that gives these flags, without the program; what has its default is left out.
std::vector<std::string> ToArguments(const EvalFlags& flags);

}  // namespace mt::decode
