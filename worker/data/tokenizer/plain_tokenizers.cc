// Neither can fail to load, and neither needs more than its arithmetic.
#include "worker/data/tokenizer/plain_tokenizers.h"

#include <charconv>
#include <limits>

namespace mt::data {
namespace {

constexpr std::string_view kEodText = "<eod>";
constexpr std::string_view kSpace = " \t\r\n";

Status OutOfVocabulary(int64_t id, int64_t vocab_size) {
  return base::InvalidArgument("token id {} is outside the vocabulary of {}", id, vocab_size);
}

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "byte"; }
  int64_t vocab_size() const override { return 257; }
  int32_t eod() const override { return 256; }
  Cuts cuts() const override { return {.rule = CutRule::kAnywhere}; }
  std::vector<int32_t> token_bytes() const override { return BytesOfByteTokens(); }

  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    ids->reserve(ids->size() + text.size());
    for (const char c : text) ids->push_back(static_cast<unsigned char>(c));
    return OkStatus();
  }

  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) return OutOfVocabulary(id, vocab_size());
      if (id == eod()) {
        text.append(kEodText);
      } else {
        text.push_back(static_cast<char>(id));
      }
    }
    return text;
  }
};

class NullTokenizer final : public Tokenizer {
 public:
  explicit NullTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}
  std::string_view name() const override { return "null"; }
  int64_t vocab_size() const override { return vocab_size_; }
  int32_t eod() const override { return static_cast<int32_t>(vocab_size_ - 1); }
  Cuts cuts() const override { return {.rule = CutRule::kSpace}; }

  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    const char* const first = text.data();
    for (;;) {
      const size_t begin = text.find_first_not_of(kSpace);
      if (begin == std::string_view::npos) return OkStatus();
      text.remove_prefix(begin);
      const std::string_view word = text.substr(0, text.find_first_of(kSpace));
      const int64_t offset = text.data() - first;
      text.remove_prefix(word.size());
      int64_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size()) {
        return ErrorAt(offset,
                       fmt::format("'{}' is no token id: the null tokenizer reads decimal ids",
                                   word.substr(0, 32)));
      }
      if (id < 0 || id >= vocab_size_)
        return ErrorAt(offset, base::Message(OutOfVocabulary(id, vocab_size_)));
      ids->push_back(static_cast<int32_t>(id));
    }
  }

  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size_) return OutOfVocabulary(id, vocab_size_);
      if (!text.empty()) text.push_back(' ');
      text.append(id == eod() ? std::string(kEodText) : std::to_string(id));
    }
    return text;
  }

 private:
  const int64_t vocab_size_;
};

}  // namespace

std::vector<int32_t> BytesOfByteTokens() {
  std::vector<int32_t> bytes(257, 1);
  bytes.back() = 0;
  return bytes;
}

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> MakeNullTokenizer(int64_t vocab_size) {
  return std::make_unique<NullTokenizer>(vocab_size);
}

}  // namespace mt::data
