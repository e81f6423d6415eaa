// The replacements are those of the harness in their order, the one that writes a pattern's own
// text included: a score is comparable only if every byte is the same.
#include "worker/decode/scores/task_text.h"

#include <algorithm>
#include <utility>

#include "worker/data/tokenizer/unicode.h"

namespace mt::decode {
namespace {

// White space of Python's str, which has four control characters more than Unicode's property.
bool IsSpace(uint32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return data::CharClasses()[code] == data::CharClass::kSpace;
}

// The bytes of white space at the beginning.
size_t LeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const data::CodePoint point = data::DecodeUtf8(text.data() + at);
    if (!IsSpace(point.code)) break;
    at += point.bytes;
  }
  return at;
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  size_t at = text->find(from);
  if (at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text->find(from, done)) {
    out.append(*text, done, at - done).append(to);
    done = at + from.size();
  }
  out.append(*text, done);
  *text = std::move(out);
}

// White space goes behind each `open` and before the next `close`; the text between may have
// further `open`s.
void TrimBetween(char open, char close, std::string* text) {
  std::string out;
  size_t done = 0;
  for (;;) {
    const size_t begin = text->find(open, done);
    const size_t end = begin == std::string::npos ? begin : text->find(close, begin + 1);
    if (end == std::string::npos) break;
    out.append(*text, done, begin + 1 - done);
    out += Stripped(std::string_view(*text).substr(begin + 1, end - begin - 1));
    out += close;
    done = end + 1;
  }
  out.append(*text, done);
  *text = std::move(out);
}

// "/' 5/" with any digit; what it becomes is the pattern's text and no digit.
void ReplaceSlashedDigits(std::string* text) {
  constexpr size_t kBytes = 5;
  std::string out;
  size_t done = 0;
  for (size_t at = text->find("/' "); at != std::string::npos; at = text->find("/' ", at)) {
    const std::string_view found = std::string_view(*text).substr(at, kBytes);
    if (found.size() == kBytes && found[3] >= '0' && found[3] <= '9' && found[4] == '/') {
      out.append(*text, done, at - done).append("/'[0-9]/");
      at += kBytes;
      done = at;
    } else {
      ++at;
    }
  }
  out.append(*text, done);
  *text = std::move(out);
}

bool BeginsPage(std::string_view line) {
  std::string plain(line);
  ReplaceAll("= = =", "===", &plain);
  ReplaceAll("= =", "==", &plain);
  const std::string_view text = Stripped(plain);
  return text.starts_with("= ") && text.ends_with(" =");
}

// What is between '[' and the next ']' of its line, both included, goes.
std::string WithoutBrackets(std::string_view text) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at)) {
    const size_t end = text.find_first_of("]\n", at);
    if (end == std::string_view::npos) break;
    if (text[end] == ']') {
      out += text.substr(done, at - done);
      done = end + 1;
    }
    at = end + 1;
  }
  return out += text.substr(done);
}

constexpr uint32_t kUnknownCase = 0x180;
constexpr uint32_t kDottedI = 0x130, kDotlessI = 0x131, kSharpS = 0xDF;

// From U+0100 to U+017F the two forms lie side by side.
bool LargeIsEven(uint32_t code) {
  return (code >= 0x100 && code <= 0x137) || (code >= 0x14A && code <= 0x177);
}
bool LargeIsOdd(uint32_t code) {
  return (code >= 0x139 && code <= 0x148) || (code >= 0x179 && code <= 0x17E);
}

void AppendSmall(uint32_t code, std::string* out) {
  if (code == kDottedI) {
    *out += "i\xCC\x87";
    return;
  }
  const bool latin1 = code >= 0xC0 && code <= 0xDE && code != 0xD7;
  if ((code >= 'A' && code <= 'Z') || latin1) {
    code += 0x20;
  } else if (code == 0x178) {
    code = 0xFF;
  } else if (code != kDotlessI &&
             ((LargeIsEven(code) && code % 2 == 0) || (LargeIsOdd(code) && code % 2 == 1))) {
    ++code;
  }
  data::AppendUtf8(code, out);
}

void AppendLarge(uint32_t code, std::string* out) {
  switch (code) {
    case kSharpS:
      *out += "Ss";
      return;
    case 0x149:  // n behind an apostrophe
      *out += "\xCA\xBCN";
      return;
    case 0xB5:
      return data::AppendUtf8(0x39C, out);
    case 0xFF:
      return data::AppendUtf8(0x178, out);
    case kDotlessI:
      return data::AppendUtf8('I', out);
    case 0x17F:
      return data::AppendUtf8('S', out);
    case kDottedI:
      return data::AppendUtf8(code, out);
    default:
      break;
  }
  const bool latin1 = code >= 0xE0 && code <= 0xFE && code != 0xF7;
  if ((code >= 'a' && code <= 'z') || latin1) {
    code -= 0x20;
  } else if ((LargeIsEven(code) && code % 2 == 1) || (LargeIsOdd(code) && code % 2 == 0)) {
    --code;
  }
  data::AppendUtf8(code, out);
}

bool HasOneForm(uint32_t code) {
  return data::CharClasses()[code] != data::CharClass::kLetter ||
         (code >= 0x3040 && code <= 0xA4FF);
}

}  // namespace

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && IsContinuation(text[begin])) --begin;
    if (!IsSpace(data::DecodeUtf8(text.data() + begin).code)) break;
    end = begin;
  }
  return text.size() - end;
}

std::string_view Stripped(std::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  return text;
}

int64_t CountWords(std::string_view text) {
  int64_t words = 1;
  for (size_t at = 0; at < text.size();) {
    if (const size_t space = LeadingSpace(text.substr(at)); space > 0) {
      ++words;
      at += space;
    } else {
      at += data::DecodeUtf8(text.data() + at).bytes;
    }
  }
  return words;
}

int64_t CountCharacters(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += IsContinuation(byte) ? 0 : 1;
  return count;
}

std::vector<std::string> WikitextPages(std::string_view file) {
  std::vector<std::string> pages;
  std::string page;
  bool empty = true;  // no line yet
  const auto end_page = [&] {
    if (!Stripped(page).empty()) pages.push_back(page);
    page.clear();
    empty = true;
  };
  for (size_t at = 0; at <= file.size();) {
    const size_t end = std::min(file.find('\n', at), file.size());
    const std::string_view line = file.substr(at, end - at);
    if (BeginsPage(line)) end_page();
    if (!empty) page += '\n';
    page += line;
    empty = false;
    at = end + 1;
  }
  end_page();
  return pages;
}

std::string DetokenizedWikitext(std::string_view page) {
  std::string text(page);
  const auto replace = [&](std::string_view from, std::string_view to) {
    ReplaceAll(from, to, &text);
  };
  replace("s '", "s'");
  ReplaceSlashedDigits(&text);
  for (const char mark : {'-', ',', '.'})
    replace(std::string(" @") + mark + "@ ", std::string(1, mark));
  for (const char mark : {':', ';', '.', '!', '?', ','})
    replace(std::string(" ") + mark + " ", std::string(1, mark) + " ");
  TrimBetween('(', ')', &text);
  TrimBetween('[', ']', &text);
  TrimBetween('{', '}', &text);
  TrimBetween('"', '"', &text);
  TrimBetween('\'', '\'', &text);
  replace("= = = =", "====");
  replace("= = =", "===");
  replace("= =", "==");
  replace(" \xC2\xB0 ", "\xC2\xB0");
  replace(" \n", "\n");
  replace("\n ", "\n");
  replace(" N ", " 1 ");
  replace(" 's", "'s");
  return text;
}

std::string CleanHellaswag(std::string_view text) {
  std::string clean(Stripped(text));
  ReplaceAll(" [title]", ". ", &clean);
  clean = WithoutBrackets(clean);
  ReplaceAll("  ", " ", &clean);
  return clean;
}

StatusOr<std::string> Capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const data::CodePoint point = data::DecodeUtf8(text.data() + at);
    if (point.code >= kUnknownCase && !HasOneForm(point.code)) {
      return base::InvalidArgument(
          "\"{}\" is a letter whose capital and small form are not known here (U+{:04X}): write "
          "the "
          "line by the plain rules",
          text.substr(at, point.bytes), point.code);
    }
    if (at == 0) {
      AppendLarge(point.code, &out);
    } else {
      AppendSmall(point.code, &out);
    }
    at += point.bytes;
  }
  return out;
}

}  // namespace mt::decode
