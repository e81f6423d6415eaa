// Texts of users are passed as words of their own: an empty one behind "=" would take the next
// word, and one that begins with a dash is no flag there, since its flag needs a text.
#include "worker/decode/generate_flags.h"

#include <limits>

#include <CLI/CLI.hpp>

namespace mt::decode {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// One text each time the flag is given.
void AddTexts(CLI::App* app, const char* name, std::vector<std::string>* to, const char* help) {
  app->add_option(name, *to, help)->expected(1)->take_all()->allow_extra_args(false);
}

}  // namespace

void AddGenerateFlags(CLI::App* app, GenerateFlags* flags) {
  AddCheckpointFlags(app, flags);
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
  AddComputeFlags(app, flags);
  app->add_flag("--raw", flags->raw,
                "Elsewhere than on a terminal: control characters as they are, not written out");
  app->add_flag("--logprobs", flags->log_probabilities,
                "With JSON: the log probability of each token, the prompt's included");
}

std::vector<std::string> ToArguments(const GenerateFlags& flags) {
  const GenerateFlags plain;
  std::vector<std::string> out = ReaderArguments(flags);
  const auto add_texts = [&](const char* name, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      out.emplace_back(name);
      out.push_back(text);
    }
  };
  add_texts("--prompt", flags.prompts);
  AddArgument("--tokens", flags.tokens, plain.tokens, &out);
  AddArgument("--samples", flags.samples, plain.samples, &out);
  AddArgument("--temperature", flags.temperature, plain.temperature, &out);
  AddArgument("--top-k", flags.top_k, plain.top_k, &out);
  AddArgument("--top-p", flags.top_p, plain.top_p, &out);
  AddArgument("--repetition-penalty", flags.repetition_penalty, plain.repetition_penalty, &out);
  add_texts("--stop", flags.stops);
  AddArgument("--seed", flags.seed, plain.seed, &out);
  if (flags.raw) out.emplace_back("--raw");
  if (flags.log_probabilities) out.emplace_back("--logprobs");
  return out;
}

}  // namespace mt::decode
