// The module's functions over SentencePieceProcessor. It includes nothing of ours but the
// interface: the library's header has an absl of its own.
#include <cstring>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>
#include <string>
#include <vector>

#include "worker/data/tokenizer/sentencepiece_module/interface.h"

namespace {

using sentencepiece::SentencePieceProcessor;

void Say(const std::string& text, MtErrorText error) {
  if (error.size == 0) return;
  const size_t size = text.size() < error.size - 1 ? text.size() : error.size - 1;
  std::memcpy(error.data, text.data(), size);
  error.data[size] = '\0';
}

const SentencePieceProcessor& Of(void* model) {
  return *static_cast<const SentencePieceProcessor*>(model);
}

// No exception leaves the module.
template <class Call>
bool Guarded(const Call& call, MtErrorText error) {
  try {
    const sentencepiece::util::Status status = call();
    if (status.ok()) return true;
    Say(status.ToString(), error);
  } catch (const std::exception& thrown) {
    Say(thrown.what(), error);
  }
  return false;
}

void* Load(const char* data, size_t size, MtErrorText error) {
  auto* const model = new (std::nothrow) SentencePieceProcessor;
  if (model == nullptr) return nullptr;
  const auto load = [&] { return model->LoadFromSerializedProto({data, size}); };
  if (Guarded(load, error)) return model;
  delete model;
  return nullptr;
}

void Free(void* model) { delete static_cast<SentencePieceProcessor*>(model); }
int32_t Size(void* model) { return Of(model).GetPieceSize(); }
int32_t Eos(void* model) { return Of(model).eos_id(); }

bool Encode(void* model, const char* text, size_t size,
            void (*take)(void* sink, const int32_t* ids, size_t count), void* sink,
            MtErrorText error) {
  std::vector<int> ids;
  const auto encode = [&] { return Of(model).Encode({text, size}, &ids); };
  if (!Guarded(encode, error)) return false;
  take(sink, ids.data(), ids.size());
  return true;
}

bool Decode(void* model, const int32_t* ids, size_t count,
            void (*take)(void* sink, const char* text, size_t size), void* sink,
            MtErrorText error) {
  std::string text;
  const auto decode = [&] { return Of(model).Decode(std::vector<int>(ids, ids + count), &text); };
  if (!Guarded(decode, error)) return false;
  take(sink, text.data(), text.size());
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default")))
const MtSentencePieceFunctions kMtSentencePieceFunctions = {
    kSentencePieceVersion, Load, Free, Size, Eos, Encode, Decode};
