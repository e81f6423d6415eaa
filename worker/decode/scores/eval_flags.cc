// The task file's path is a word of its own: it may begin with a dash.
#include "worker/decode/scores/eval_flags.h"

#include <CLI/CLI.hpp>

namespace mt::decode {

void AddEvalFlags(CLI::App* app, EvalFlags* flags) {
  app->add_option("-f,--file", flags->tasks, "The task file: what is scored, and how")->required();
  AddCheckpointFlags(app, flags);
  AddComputeFlags(app, flags);
}

std::vector<std::string> ToArguments(const EvalFlags& flags) {
  std::vector<std::string> out = ReaderArguments(flags);
  out.emplace_back("--file");
  out.push_back(flags.tasks);
  return out;
}

}  // namespace mt::decode
