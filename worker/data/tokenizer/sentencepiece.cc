// The module lies beside the program or in ../lib. It is bound to its own symbols first
// (RTLD_DEEPBIND): the protobuf in libsentencepiece is not that of the program.
#include "worker/data/tokenizer/sentencepiece.h"

#include <array>
#include <dlfcn.h>
#include <filesystem>
#include <malloc.h>
#include <utility>

#include "common/base/mutex.h"
#include "worker/data/tokenizer/sentencepiece_module/interface.h"

namespace mt::data {
namespace {

constexpr char kModule[] = "libmt_sentencepiece.so";
constexpr size_t kTrimAboveBytes = size_t{256} << 10;
using ErrorBuffer = std::array<char, 512>;

StatusOr<std::string> FindModule() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& path : {folder / kModule, folder.parent_path() / "lib" / kModule}) {
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return base::FailedPrecondition(
      "sentencepiece: {} is not beside the program or in ../lib: build with Debian's package "
      "libsentencepiece-dev installed",
      kModule);
}

StatusOr<const MtSentencePieceFunctions*> LoadModule() {
  ASSIGN_OR_RETURN(const std::string path, FindModule());
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (module == nullptr) {
    return base::FailedPrecondition("sentencepiece: {}; install Debian's package libsentencepiece0",
                                    dlerror());
  }
  const auto* const functions =
      static_cast<const MtSentencePieceFunctions*>(::dlsym(module, kSentencePieceSymbol));
  if (functions == nullptr || functions->version != kSentencePieceVersion)
    return base::FailedPrecondition("sentencepiece: {} is not a module of this program", path);
  return functions;
}

// Loaded once and kept: protobuf does not like to be unloaded.
const StatusOr<const MtSentencePieceFunctions*>& Module() {
  static const StatusOr<const MtSentencePieceFunctions*> module = LoadModule();
  return module;
}

// A message of protobuf, field by field; it ends where it is damaged.
class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  bool Next() {
    uint64_t tag = 0;
    if (!Varint(&tag)) return false;
    field_ = tag >> 3;
    number_ = 0;
    text_ = {};
    switch (tag & 7) {
      case 0:
        return Varint(&number_);
      case 1:
        return Take(8);
      case 2:
        return Varint(&number_) && Take(number_);
      case 5:
        return Take(4);
      default:
        return false;
    }
  }
  uint64_t field() const { return field_; }
  uint64_t number() const { return number_; }
  std::string_view text() const { return text_; }
  bool damaged() const { return !left_.empty(); }

 private:
  bool Take(uint64_t bytes) {
    if (bytes > left_.size()) return false;
    text_ = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < left_.size() && i < 10; ++i) {
      const auto byte = static_cast<unsigned char>(left_[i]);
      *value |= static_cast<uint64_t>(byte & 0x7FU) << (7 * i);
      if (byte >= 0x80) continue;
      left_.remove_prefix(i + 1);
      return true;
    }
    return false;
  }

  std::string_view left_, text_;
  uint64_t field_ = 0, number_ = 0;
};

// What the library writes for a space.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

size_t BytesWithSpaces(std::string_view piece) {
  size_t bytes = piece.size();
  for (size_t at = piece.find(kSpaceMark); at != std::string_view::npos;
       at = piece.find(kSpaceMark, at + kSpaceMark.size())) {
    bytes -= kSpaceMark.size() - 1;
  }
  return bytes;
}

// One piece for what the library writes for a space, none over it, and none of white space.
bool PiecesEndAtSpaces(std::string_view model) {
  bool has_space = false;
  Fields fields(model);
  while (fields.Next()) {
    if (fields.field() != 1) continue;
    Fields piece(fields.text());
    while (piece.Next()) {
      if (piece.field() != 1) continue;
      std::string_view text = piece.text();
      has_space |= text == kSpaceMark;
      while (text.starts_with(kSpaceMark)) text.remove_prefix(kSpaceMark.size());
      if (text.find(kSpaceMark) != std::string_view::npos) return false;
      if (text.find_first_of(" \t\r\n") != std::string_view::npos) return false;
    }
  }
  return has_space && !fields.damaged();
}

// A text that begins is normalized as one that goes on behind a space, and only the space: blanks
// and line ends become one space, those at a text's ends go, and one is put before it. The numbers
// are those of sentencepiece_model.proto; absent flags are true.
bool TextsBeginAsTheyGoOn(std::string_view normalizer) {
  bool usual = false;
  Fields fields(normalizer);
  while (fields.Next()) {
    if (fields.field() == 1) usual = fields.text() == "nmt_nfkc" || fields.text() == "nmt_nfkc_cf";
    const bool flag = fields.field() >= 3 && fields.field() <= 5;
    if (flag && fields.number() == 0) return false;
  }
  return usual && !fields.damaged();
}

// BPE whose spaces come before words. A unigram model's choice depends on sums over all of a text.
bool MergesWithinWords(std::string_view trainer) {
  bool bpe = false;
  Fields fields(trainer);
  while (fields.Next()) {
    if (fields.field() == 3) bpe = fields.number() == 2;
    if (fields.field() == 24 && fields.number() != 0) return false;
  }
  return bpe && !fields.damaged();
}

Cuts CutsOfModel(std::string_view model) {
  bool merges = false, begins = false;
  Fields fields(model);
  while (fields.Next()) {
    if (fields.field() == 2) merges = MergesWithinWords(fields.text());
    if (fields.field() == 3) begins = TextsBeginAsTheyGoOn(fields.text());
  }
  if (!merges || !begins || !PiecesEndAtSpaces(model)) return {};
  return {.rule = CutRule::kAfterWord};
}

// The bytes that each piece stands for, as sentencepiece_model.proto has pieces: a text, and a
// type. What is written for a space is one; of an unknown character nothing is left.
std::vector<int32_t> BytesOfPieces(std::string_view model) {
  constexpr uint64_t kUnknown = 2, kControl = 3, kByte = 6;
  std::vector<int32_t> bytes;
  Fields fields(model);
  while (fields.Next()) {
    if (fields.field() != 1) continue;
    size_t size = 0;
    uint64_t type = 0;
    Fields piece(fields.text());
    while (piece.Next()) {
      if (piece.field() == 1) size = BytesWithSpaces(piece.text());
      if (piece.field() == 3) type = piece.number();
    }
    if (type == kUnknown || type == kControl) size = 0;
    bytes.push_back(type == kByte ? 1 : static_cast<int32_t>(size));
  }
  return bytes;
}

// What is encoded at one time: a thread waits until its text has room beside those of others.
class BytesAtOnce {
 public:
  void Take(size_t bytes) {
    const base::MutexLock lock(&mutex_);
    while (taken_ > 0 && taken_ + bytes > kMaxSentencePieceBytes) returned_.Wait(&mutex_);
    taken_ += bytes;
  }
  void Return(size_t bytes) {
    const base::MutexLock lock(&mutex_);
    taken_ -= bytes;
    returned_.NotifyAll();
  }

 private:
  base::Mutex mutex_;
  base::CondVar returned_;
  size_t taken_ GUARDED_BY(mutex_) = 0;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const MtSentencePieceFunctions* functions, void* model, std::string digest,
                         Cuts cuts, std::vector<int32_t> token_bytes)
      : functions_(functions),
        model_(model),
        digest_(std::move(digest)),
        cuts_(std::move(cuts)),
        token_bytes_(std::move(token_bytes)) {}
  ~SentencePieceTokenizer() override { functions_->free(model_); }
  SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;

  std::string_view name() const override { return "sentencepiece"; }
  std::string digest() const override { return digest_; }
  int64_t vocab_size() const override { return functions_->size(model_); }
  Cuts cuts() const override { return cuts_; }
  std::vector<int32_t> token_bytes() const override { return token_bytes_; }
  int32_t eod() const override {
    const int32_t eos = functions_->eos(model_);
    return eos < 0 ? kNoEod : eos;
  }

  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    if (text.size() > kMaxSentencePieceBytes) {
      return ErrorAt(
          0, fmt::format("a text of {} bytes, more than the {} that sentencepiece is given at "
                         "once: divide it into documents",
                         text.size(), kMaxSentencePieceBytes));
    }
    ErrorBuffer error{};
    const auto take = [](void* sink, const int32_t* from, size_t count) {
      auto* const to = static_cast<std::vector<int32_t>*>(sink);
      to->insert(to->end(), from, from + count);
    };
    at_once_.Take(text.size());
    const bool encoded = functions_->encode(model_, text.data(), text.size(), take, ids,
                                            {error.data(), error.size()});
    // Each thread's arena would keep what its largest text took.
    if (text.size() > kTrimAboveBytes) (void)malloc_trim(0);
    at_once_.Return(text.size());
    if (encoded) return OkStatus();
    return base::InvalidArgument("sentencepiece: {}", error.data());
  }

  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) {
      if (id >= 0 && id < vocab_size()) continue;
      return base::InvalidArgument("token id {} is outside the vocabulary of {}", id, vocab_size());
    }
    std::string text;
    ErrorBuffer error{};
    const auto take = [](void* sink, const char* from, size_t size) {
      static_cast<std::string*>(sink)->assign(from, size);
    };
    if (functions_->decode(model_, ids.data(), ids.size(), take, &text,
                           {error.data(), error.size()})) {
      return text;
    }
    return base::InvalidArgument("sentencepiece: {}", error.data());
  }

 private:
  const MtSentencePieceFunctions* const functions_;
  void* const model_;
  const std::string digest_;
  const Cuts cuts_;
  const std::vector<int32_t> token_bytes_;
  mutable BytesAtOnce at_once_;
};

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePiece(std::string_view model, std::string digest) {
  RETURN_IF_ERROR(Module().status());
  const MtSentencePieceFunctions* const functions = *Module();
  ErrorBuffer error{};
  void* const loaded = functions->load(model.data(), model.size(), {error.data(), error.size()});
  if (loaded == nullptr)
    return base::InvalidArgument("not a SentencePiece model: {}", error.data());
  // A field that the library reads in another way than ours: then nothing is known.
  std::vector<int32_t> bytes = BytesOfPieces(model);
  if (std::ssize(bytes) != functions->size(loaded)) bytes.clear();
  return std::make_unique<SentencePieceTokenizer>(functions, loaded, std::move(digest),
                                                  CutsOfModel(model), std::move(bytes));
}

}  // namespace mt::data
