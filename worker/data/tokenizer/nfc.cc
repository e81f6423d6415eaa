// Most text is below U+0300, where NFC changes nothing and each character stands apart from the one
// before it; ICU is shown what lies between, with the character before, which may take a mark.
#include "worker/data/tokenizer/nfc.h"

#include <algorithm>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include "common/base/check.h"
#include "worker/data/tokenizer/tokenizer.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

// U+0300 is CC 80; bytes that go on with a character are below C0.
constexpr unsigned char kFirstLead = 0xCC;
// ICU's lengths have 31 bits; parts of this size are cut where a character stands apart.
constexpr size_t kIcuPartBytes = size_t{32} << 10;

bool IsLead(char c) { return static_cast<unsigned char>(c) >= kFirstLead; }
bool GoesOn(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

class Tables {
 public:
  static const Tables& Get() {
    static const Tables tables;
    return tables;
  }
  const icu::Normalizer2& normalizer() const { return filtered_; }

 private:
  Tables() : known_(Known()), filtered_(Unfiltered(), known_) {}
  static icu::UnicodeSet Known() {
    UErrorCode error = U_ZERO_ERROR;
    const std::string pattern = "[:age=" + std::string(kNfcUnicodeVersion) + ":]";
    icu::UnicodeSet known(icu::UnicodeString::fromUTF8(pattern), error);
    CHECK(U_SUCCESS(error)) << pattern << ": " << u_errorName(error);
    known.freeze();
    return known;
  }
  static const icu::Normalizer2& Unfiltered() {
    UErrorCode error = U_ZERO_ERROR;
    const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(error);
    CHECK(U_SUCCESS(error)) << "ICU has no NFC: " << u_errorName(error);
    return *nfc;
  }

  const icu::UnicodeSet known_;  // what had been assigned by then
  const icu::FilteredNormalizer2 filtered_;
};

// Bytes from the front of `text` that NFC looks at together: to the first character below U+0300,
// or, beyond kIcuPartBytes, to one that stands apart. `text` begins with the character before them,
// if there is one. 0 where there is none within kMaxJoinedBytes.
size_t JoinedBytes(std::string_view text) {
  size_t at = DecodeUtf8(text.data()).bytes;
  while (at < text.size() && IsLead(text[at])) {
    const CodePoint point = DecodeUtf8(text.data() + at);
    if (at >= kIcuPartBytes &&
        Tables::Get().normalizer().hasBoundaryBefore(static_cast<UChar32>(point.code)))
      return at;
    if (at >= kMaxJoinedBytes) return 0;
    at += point.bytes;
  }
  return at;
}

void Append(std::string_view joined, std::string* out) {
  UErrorCode error = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(out);
  Tables::Get().normalizer().normalizeUTF8(
      0, icu::StringPiece(joined.data(), static_cast<int32_t>(joined.size())), sink, nullptr,
      error);
  CHECK(U_SUCCESS(error)) << "NFC of " << joined.size() << " bytes: " << u_errorName(error);
}

// Of valid UTF-8, a part of `whole`.
Status AppendNfc(std::string_view text, std::string_view whole, std::string* out) {
  while (!text.empty()) {
    const auto lead = std::ranges::find_if(text, IsLead);
    auto begin = static_cast<size_t>(lead - text.begin());
    if (lead == text.end()) {
      out->append(text);
      break;
    }
    if (begin > 0) --begin;
    while (begin > 0 && GoesOn(text[begin])) --begin;
    out->append(text.substr(0, begin));
    text.remove_prefix(begin);
    const size_t size = JoinedBytes(text);
    if (size == 0) {
      return ErrorAt(text.data() - whole.data(),
                     fmt::format("more than {} bytes of combining characters in a row, which NFC "
                                 "would have to order: is this text?",
                                 kMaxJoinedBytes));
    }
    Append(text.substr(0, size), out);
    text.remove_prefix(size);
  }
  return OkStatus();
}

}  // namespace

bool IsSurelyNfc(std::string_view text) { return std::ranges::none_of(text, IsLead); }

StatusOr<std::string> Nfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::string_view left = text; !left.empty();) {
    const size_t valid = ValidUtf8Prefix(left);
    RETURN_IF_ERROR(AppendNfc(left.substr(0, valid), text, &result));
    left.remove_prefix(valid);
    const size_t invalid = InvalidUtf8Prefix(left);
    result.append(left.substr(0, invalid));
    left.remove_prefix(invalid);
  }
  return result;
}

}  // namespace mt::data
