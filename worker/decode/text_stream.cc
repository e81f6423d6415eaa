// The whole is decoded anew with each token: a tokenizer's text of a token may depend on those
// before it. That is quadratic, and microseconds at the lengths that a model has positions for.
#include "worker/decode/text_stream.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace mt::decode {

size_t UnfinishedBytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;  // goes on
    const size_t length = byte >= 0xF0U && byte < 0xF8U ? 4 : byte >= 0xE0U ? 3 : 2;
    return byte >= 0xC2U && byte < 0xF8U && length > back ? back : 0;
  }
  return 0;
}

namespace {

// U+FFFD at the end, at most three: what SentencePiece makes of the bytes of a character that is
// not finished.
size_t ReplacedBytes(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  size_t held = 0;
  while (held < 3 * kReplacement.size() &&
         text.substr(0, text.size() - held).ends_with(kReplacement))
    held += kReplacement.size();
  return held;
}

}  // namespace

TextStream::TextStream(const data::Tokenizer* tokenizer, std::vector<int32_t> prompt,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      ids_(std::move(prompt)),
      prompt_size_(ids_.size()) {
  for (const std::string& stop : stops_) CHECK(!stop.empty());
}

StatusOr<std::string> TextStream::Add(int32_t token) {
  CHECK(!stopped_);
  if (ids_.size() == prompt_size_) {
    ASSIGN_OR_RETURN(before_, tokenizer_->Decode(ids_));
  }
  ids_.push_back(token);
  ASSIGN_OR_RETURN(const std::string whole, tokenizer_->Decode(ids_));
  // A prompt that ends within a character becomes another text with the rest of it.
  const size_t common = std::min(whole.size(), before_.size());
  all_ = whole.substr(whole.compare(0, common, before_) == 0
                          ? common
                          : common - UnfinishedBytes(std::string_view(before_).substr(0, common)));
  size_t found = std::string::npos;
  for (const std::string& stop : stops_) found = std::min(found, all_.find(stop));
  if (found != std::string::npos) {
    stopped_ = true;
    return Take(all_, std::max(found, text_.size()));
  }
  const size_t held = std::max({UnfinishedBytes(all_), ReplacedBytes(all_), HeldForStops(all_)});
  return Take(all_, all_.size() - std::min(held, all_.size()));
}

std::string TextStream::Finish() { return stopped_ ? std::string() : Take(all_, all_.size()); }

std::string TextStream::Take(std::string_view all, size_t end) {
  // Text that a tokenizer changed afterwards is left as it was returned.
  if (end <= text_.size()) return "";
  std::string piece(all.substr(text_.size(), end - text_.size()));
  text_ += piece;
  return piece;
}

size_t TextStream::HeldForStops(std::string_view all) const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, all.size()); n > held; --n) {
      if (all.ends_with(std::string_view(stop).substr(0, n))) {
        held = n;
        break;
      }
    }
  }
  return held;
}

}  // namespace mt::decode
