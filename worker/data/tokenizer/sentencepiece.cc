// The module lies beside the program or in ../lib. It is bound to its own symbols first
// (RTLD_DEEPBIND): the protobuf in libsentencepiece is not that of the program.
#include "worker/data/tokenizer/sentencepiece.h"

#include <array>
#include <dlfcn.h>
#include <filesystem>
#include <utility>

#include "worker/data/tokenizer/bpe_model.h"
#include "worker/data/tokenizer/sentencepiece_module/interface.h"

namespace mt::data {
namespace {

constexpr char kModule[] = "libmt_sentencepiece.so";
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

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const MtSentencePieceFunctions* functions, void* model, std::string digest)
      : functions_(functions), model_(model), digest_(std::move(digest)) {}
  ~SentencePieceTokenizer() override { functions_->free(model_); }
  SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;

  std::string_view name() const override { return "sentencepiece"; }
  std::string digest() const override { return digest_; }
  int64_t vocab_size() const override { return functions_->size(model_); }
  int32_t eod() const override {
    const int32_t eos = functions_->eos(model_);
    return eos < 0 ? kNoEod : eos;
  }

  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    if (text.size() > kMaxPieceBytes) {
      return base::InvalidArgument(
          "a text of {} bytes, more than the {} that sentencepiece is given at once: divide it "
          "into documents",
          text.size(), kMaxPieceBytes);
    }
    ErrorBuffer error{};
    const auto take = [](void* sink, const int32_t* from, size_t count) {
      auto* const to = static_cast<std::vector<int32_t>*>(sink);
      to->insert(to->end(), from, from + count);
    };
    if (functions_->encode(model_, text.data(), text.size(), take, ids,
                           {error.data(), error.size()})) {
      return OkStatus();
    }
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
};

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePiece(std::string_view model, std::string digest) {
  RETURN_IF_ERROR(Module().status());
  const MtSentencePieceFunctions* const functions = *Module();
  ErrorBuffer error{};
  void* const loaded = functions->load(model.data(), model.size(), {error.data(), error.size()});
  if (loaded == nullptr)
    return base::InvalidArgument("not a SentencePiece model: {}", error.data());
  return std::make_unique<SentencePieceTokenizer>(functions, loaded, std::move(digest));
}

}  // namespace mt::data
