// The pattern is compiled with PCRE2's just-in-time compiler where the machine allows it, and means
// Unicode by \p, \s and \d.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/data/tokenizer/regex_splitter.h"

#include <array>
#include <cstdint>
#include <pcre2.h>
#include <string>
#include <utility>

namespace mt::data {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;

struct Freer {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <class T>
using Owned = std::unique_ptr<T, Freer>;

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct RegexSplitter::Code {
  Owned<pcre2_code> compiled;
};

RegexSplitter::RegexSplitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

StatusOr<RegexSplitter> RegexSplitter::Create(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->compiled.reset(pcre2_compile(Units(pattern), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                                     &offset, nullptr));
  if (code->compiled == nullptr) {
    return base::InvalidArgument("the pattern is not one of PCRE2: {} at offset {}",
                                 ErrorText(error), offset);
  }
  (void)pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);  // else it is interpreted
  return RegexSplitter(std::move(code));
}

Status RegexSplitter::Split(std::string_view text, const Piece& piece) const {
  const Owned<pcre2_match_data> match(
      pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr));
  const Owned<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  const Owned<pcre2_jit_stack> stack(
      pcre2_jit_stack_create(size_t{32} << 10, kStackBytes, nullptr));
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  size_t done = 0;
  size_t from = 0;
  while (from < text.size()) {
    const int found = pcre2_match(code_->compiled.get(), Units(text), text.size(), from,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return base::InvalidArgument("the pattern cannot be matched at offset {} of the text: {}",
                                   from, ErrorText(found));
    }
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.get());
    // \K in a lookbehind could move the start backwards.
    if (ends[0] < done || ends[1] <= ends[0]) {
      return base::InvalidArgument("the pattern matches text twice at offset {}", from);
    }
    if (ends[0] > done) RETURN_IF_ERROR(piece(text.substr(done, ends[0] - done)));
    RETURN_IF_ERROR(piece(text.substr(ends[0], ends[1] - ends[0])));
    done = from = ends[1];
  }
  return done < text.size() ? piece(text.substr(done)) : OkStatus();
}

}  // namespace mt::data
