// The flags that `mt-rank --generate` and `--eval` have in common: which checkpoint, how it is
// computed, and the tokenizer of its text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace CLI {
class App;
}

namespace mt::decode {

struct ReaderFlags {
  int64_t step = -1;  // -1: not given
  std::string tag;
  std::string device = "cpu";      // or "gpu"
  std::string precision = "auto";  // "auto", "fp32", "fp64", "bf16", "fp16"
  int threads = 1;
  std::string tokenizer;  // instead of the job's; empty: that
  // Files of the tokenizer, on this machine: those of the job lie below the worker's data root.
  std::string tokenizer_file, vocab, merges;
  // How messages say that the four are given.
  std::string named_by = "--tokenizer, --tokenizer-file, --vocab and --merges";
  bool json = false;  // of mt-rank alone; mtctl has -o json
};

// The first two, then the others; --json is the program's. `flags` must live as long as the app.
void AddCheckpointFlags(CLI::App* app, ReaderFlags* flags);
void AddComputeFlags(CLI::App* app, ReaderFlags* flags);
// What gives these flags on a command line, --json included; what has its default is left out.
std::vector<std::string> ReaderArguments(const ReaderFlags& flags);

// Appends "name=value", unless it is the default.
template <class T>
void AddArgument(const char* name, const T& value, const T& usual, std::vector<std::string>* out) {
  if (value != usual) out->push_back(fmt::format("{}={}", name, value));
}

}  // namespace mt::decode
