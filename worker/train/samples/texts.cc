// A text is kept as JSON could hold it, and cut between characters.
#include "worker/train/samples/texts.h"

#include <nlohmann/json.hpp>

#include "megatrain/v1/job.pb.h"

namespace mt::train {
namespace {

// What is not UTF-8, as a part of a character, replaced.
std::string Utf8(const std::string& text) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace

TextRequest TextRequestOf(const megatrain::v1::Generate& generate) {
  return {.prompts = {generate.prompts().begin(), generate.prompts().end()},
          .samples = generate.samples(),
          .tokens = generate.tokens(),
          .sampling = {.temperature = generate.temperature(),
                       .top_k = generate.top_k(),
                       .top_p = generate.top_p(),
                       .repetition_penalty = generate.repetition_penalty(),
                       .seed = generate.seed()},
          .stops = {generate.stops().begin(), generate.stops().end()}};
}

KeptText KeptTextOf(const decode::Continuation& one) {
  KeptText kept{.text = Utf8(one.text), .finish = std::string(Name(one.finish))};
  if (kept.text.size() <= kMostSampleBytes) return kept;
  // Not within a character.
  size_t end = kMostSampleBytes;
  while (end > 0 && (static_cast<unsigned char>(kept.text[end]) & 0xC0U) == 0x80U) --end;
  kept.text.resize(end);
  kept.finish = "cut";
  return kept;
}

}  // namespace mt::train
