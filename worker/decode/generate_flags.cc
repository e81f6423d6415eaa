// Texts of users are passed as words of their own: an empty one behind "=" would take the next
// word, and one that begins with a dash is no flag there, since its flag needs a text.
#include "worker/decode/generate_flags.h"

#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace mt::decode {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// One text each time the flag is given.
void AddTexts(CLI::App* app, const char* name, std::vector<std::string>* to, const char* help) {
  app->add_option(name, *to, help)->expected(1)->take_all()->allow_extra_args(false);
}

}  // namespace

void AddGenerateFlags(CLI::App* app, GenerateFlags* flags) {
  auto* step = app->add_option("--step", flags->step,
                               "The checkpoint of this step [the newest complete one]")
                   ->check(CLI::Range(int64_t{0}, kMost));
  app->add_option("--tag", flags->tag, "The checkpoint with this tag")
      ->excludes(step)
      ->check([](const std::string& tag) { return std::string(tag.empty() ? "is empty" : ""); });
  AddTexts(
      app, "--prompt", &flags->prompts,
      "Text to go on from; - reads it from standard input; may be given several times [the end "
      "of a document]");
  app->add_option("--tokens", flags->tokens, "At most so many for each [64]")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  app->add_option("--samples", flags->samples, "Texts for each prompt [1]")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app->add_option("--temperature", flags->temperature,
                  "What logits are divided by before a token is drawn; 0 takes the likeliest [0]");
  app->add_option("--top-k", flags->top_k, "Draw among the K likeliest [all]");
  app->add_option("--top-p", flags->top_p,
                  "Draw among the likeliest that together have this probability [1: all]");
  app->add_option("--repetition-penalty", flags->repetition_penalty,
                  "Makes tokens that are there already less likely, above 1 [1: none]");
  AddTexts(app, "--stop", &flags->stops,
           "A text that ends a sample, which leaves it out; repeatable");
  app->add_option("--seed", flags->seed, "Of what is drawn [1234]")
      ->check(CLI::Range(int64_t{0}, kMost));
  app->add_option("--precision", flags->precision,
                  "Arithmetic: fp32 or fp64 [auto: fp64 for a job in fp64, else fp32]")
      ->check(CLI::IsMember({"auto", "fp32", "fp64"}));
  app->add_option("--threads", flags->threads, "CPU threads; a job may train beside it [1]")
      ->check(CLI::Range(1, 1024));
  app->add_option("--tokenizer", flags->tokenizer,
                  "byte, null (numbers), gpt2_bpe, hf or sentencepiece [the job's]");
  app->add_option("--tokenizer-file", flags->tokenizer_file,
                  "hf, sentencepiece: tokenizer.json or the model, on this machine");
  app->add_option("--vocab", flags->vocab, "gpt2_bpe: vocab.json, on this machine");
  app->add_option("--merges", flags->merges, "gpt2_bpe: merges.txt, on this machine");
  app->add_flag("--raw", flags->raw,
                "Elsewhere than on a terminal: control characters as they are, not written out");
  app->add_flag("--logprobs", flags->log_probabilities,
                "With JSON: the log probability of each token, the prompt's included");
}

std::vector<std::string> ToArguments(const GenerateFlags& flags) {
  const GenerateFlags plain;
  std::vector<std::string> out;
  const auto add = [&](const char* name, const auto& value, const auto& usual) {
    if (value != usual) out.push_back(fmt::format("{}={}", name, value));
  };
  const auto add_texts = [&](const char* name, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      out.emplace_back(name);
      out.push_back(text);
    }
  };
  add("--step", flags.step, plain.step);
  add("--tag", flags.tag, plain.tag);
  add_texts("--prompt", flags.prompts);
  add("--tokens", flags.tokens, plain.tokens);
  add("--samples", flags.samples, plain.samples);
  add("--temperature", flags.temperature, plain.temperature);
  add("--top-k", flags.top_k, plain.top_k);
  add("--top-p", flags.top_p, plain.top_p);
  add("--repetition-penalty", flags.repetition_penalty, plain.repetition_penalty);
  add_texts("--stop", flags.stops);
  add("--seed", flags.seed, plain.seed);
  add("--precision", flags.precision, plain.precision);
  add("--threads", flags.threads, plain.threads);
  add("--tokenizer", flags.tokenizer, plain.tokenizer);
  add("--tokenizer-file", flags.tokenizer_file, plain.tokenizer_file);
  add("--vocab", flags.vocab, plain.vocab);
  add("--merges", flags.merges, plain.merges);
  if (flags.raw) out.emplace_back("--raw");
  if (flags.log_probabilities) out.emplace_back("--logprobs");
  if (flags.json) out.emplace_back("--json");
  return out;
}

}  // namespace mt::decode
