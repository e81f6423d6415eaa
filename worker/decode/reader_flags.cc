// The bodies, apart from the flags that only one of the two has.
#include "worker/decode/reader_flags.h"

#include <limits>

#include <CLI/CLI.hpp>

namespace mt::decode {

void AddCheckpointFlags(CLI::App* app, ReaderFlags* flags) {
  auto* step = app->add_option("--step", flags->step,
                               "The checkpoint of this step [the newest complete one]")
                   ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()));
  app->add_option("--tag", flags->tag, "The checkpoint with this tag")
      ->excludes(step)
      ->check([](const std::string& tag) { return std::string(tag.empty() ? "is empty" : ""); });
}

void AddComputeFlags(CLI::App* app, ReaderFlags* flags) {
  app->add_option("--device", flags->device,
                  "cpu, or gpu: the first one of this machine that is seen [cpu]")
      ->check(CLI::IsMember({"cpu", "gpu"}));
  app->add_option(
         "--precision", flags->precision,
         "Arithmetic: fp32, fp64, bf16 or fp16 [auto: what the job trains in, but fp32 for "
         "16 bits on a CPU]")
      ->check(CLI::IsMember({"auto", "fp32", "fp64", "bf16", "fp16"}));
  app->add_option("--threads", flags->threads, "CPU threads; a job may train beside it [1]")
      ->check(CLI::Range(1, 1024));
  app->add_option("--tokenizer", flags->tokenizer,
                  "byte, null (numbers), gpt2_bpe, hf or sentencepiece [the job's]");
  app->add_option("--tokenizer-file", flags->tokenizer_file,
                  "hf, sentencepiece: tokenizer.json or the model, on this machine");
  app->add_option("--vocab", flags->vocab, "gpt2_bpe: vocab.json, on this machine");
  app->add_option("--merges", flags->merges, "gpt2_bpe: merges.txt, on this machine");
}

std::vector<std::string> ReaderArguments(const ReaderFlags& flags) {
  const ReaderFlags plain;
  std::vector<std::string> out;
  AddArgument("--step", flags.step, plain.step, &out);
  AddArgument("--tag", flags.tag, plain.tag, &out);
  AddArgument("--device", flags.device, plain.device, &out);
  AddArgument("--precision", flags.precision, plain.precision, &out);
  AddArgument("--threads", flags.threads, plain.threads, &out);
  AddArgument("--tokenizer", flags.tokenizer, plain.tokenizer, &out);
  AddArgument("--tokenizer-file", flags.tokenizer_file, plain.tokenizer_file, &out);
  AddArgument("--vocab", flags.vocab, plain.vocab, &out);
  AddArgument("--merges", flags.merges, plain.merges, &out);
  if (flags.json) out.emplace_back("--json");
  return out;
}

}  // namespace mt::decode
