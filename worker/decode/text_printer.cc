// A heading for each where there are several.
#include "worker/decode/text_printer.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/plain_text.h"

namespace mt::decode {

TextPrinter::TextPrinter(TextSink out, std::vector<std::string> prompts, int64_t samples, bool raw)
    : out_(std::move(out)),
      prompts_(std::move(prompts)),
      samples_(samples),
      raw_(raw),
      all_(prompts_.size() * static_cast<size_t>(samples)) {}

void TextPrinter::Add(int64_t prompt, int64_t sample, std::string_view text, bool ended) {
  Waiting& one = all_[static_cast<size_t>(prompt * samples_ + sample)];
  one.text += text;
  one.begun = true;
  one.ended = one.ended || ended;
  Advance();
  Flush();
}

void TextPrinter::Finish() {
  for (Waiting& one : all_) one.ended = one.begun;
  Advance();
  Flush();
}

void TextPrinter::Advance() {
  for (; turn_ < all_.size() && all_[turn_].begun; ++turn_) {
    Waiting& one = all_[turn_];
    Begin();
    Write(std::exchange(one.text, {}));
    if (!one.ended) return;
    Write("\n");
  }
}

void TextPrinter::Begin() {
  if (headed_ > turn_) return;
  headed_ = turn_ + 1;
  const size_t prompt = turn_ / static_cast<size_t>(samples_);
  const size_t sample = turn_ % static_cast<size_t>(samples_);
  std::string heading;
  if (prompts_.size() > 1) heading = fmt::format("prompt {}", prompt + 1);
  if (samples_ > 1) heading += fmt::format("{}sample {}", heading.empty() ? "" : ", ", sample + 1);
  if (!heading.empty()) Write(fmt::format("== {}\n", heading));
  Write(prompts_[prompt]);
}

void TextPrinter::Write(std::string_view text) {
  piece_ += raw_ ? std::string(text) : base::CleanText(text);
}

void TextPrinter::Flush() {
  const std::string piece = std::exchange(piece_, {});
  if (status_.ok() && !piece.empty()) status_ = out_(piece);
}

}  // namespace mt::decode
