// The patterns that Cuts knows end every piece before a space that follows a letter or digit, and
// begin the next one with that space. A single line end between other characters is a piece, or the
// end of one; more white space around it would be shared out by what follows.
#include "worker/data/prepare/document_cut.h"

#include <algorithm>

namespace mt::data {
namespace {

bool IsAsciiWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool IsAsciiSpace(char c) { return (c >= '\t' && c <= '\r') || c == ' '; }
bool IsAscii(char c) { return (static_cast<unsigned char>(c) & 0x80U) == 0; }

// Unicode's white space beyond ASCII is U+0085, U+00A0, U+1680, U+2000 ... U+205F and U+3000; to
// some U+180E too. Some others are taken for it here, which costs a place to cut.
bool MayEndInSpace(std::string_view text) {
  if (text.empty()) return true;
  if (IsAscii(text.back())) return IsAsciiSpace(text.back());
  if (text.ends_with("\xC2\x85") || text.ends_with("\xC2\xA0")) return true;
  if (text.size() < 3) return false;
  const std::string_view last = text.substr(text.size() - 3);
  return last[0] == '\xE1' || last.substr(0, 2) == "\xE2\x80" || last.substr(0, 2) == "\xE2\x81" ||
         last == "\xE3\x80\x80";
}
bool MayBeginWithSpace(std::string_view text) {
  if (text.empty()) return true;
  if (IsAscii(text.front())) return IsAsciiSpace(text.front());
  if (text.front() == '\xE3') return text.size() < 2 || text[1] == '\x80';
  return text.front() == '\xC2' || text.front() == '\xE1' || text.front() == '\xE2';
}

bool IsBetweenPieces(std::string_view text, size_t at) {
  if (text[at - 1] == '\n')
    return !MayEndInSpace(text.substr(0, at - 1)) && !MayBeginWithSpace(text.substr(at));
  return at < text.size() && text[at] == ' ' && IsAsciiWord(text[at - 1]);
}

// `token` may begin before `at` and end behind it.
bool MaySpan(std::string_view token, std::string_view text, size_t at) {
  for (size_t before = 1; before < token.size() && before <= at; ++before) {
    const std::string_view behind = token.substr(before, text.size() - at);
    if (text.substr(at - before, before) == token.substr(0, before) &&
        text.substr(at).starts_with(behind)) {
      return true;
    }
  }
  return false;
}

size_t LastCutAfterWord(std::string_view text, const Cuts& cuts) {
  for (size_t at = text.find_last_of(" \n"); at != std::string_view::npos;
       at = text.find_last_of(" \n", at - 1)) {
    const size_t cut = text[at] == '\n' ? at + 1 : at;
    const auto spans = [&](std::string_view token) { return MaySpan(token, text, cut); };
    if (cut > 0 && IsBetweenPieces(text, cut) && std::ranges::none_of(cuts.whole, spans))
      return cut;
    if (at == 0) break;
  }
  return 0;
}

}  // namespace

size_t LastCut(std::string_view text, const Cuts& cuts) {
  switch (cuts.rule) {
    case CutRule::kNowhere:
      return 0;
    case CutRule::kAnywhere:
      return text.size();
    case CutRule::kAfterWord:
      return LastCutAfterWord(text, cuts);
    case CutRule::kSpace:
      break;
  }
  const size_t space = text.find_last_of(" \t\r\n");
  return space == std::string_view::npos ? 0 : space;
}

}  // namespace mt::data
