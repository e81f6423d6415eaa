// The header of llm.c's model files, 256 int32 little-endian, and the models that it can say. Pure.
// Legend, as llm.c has it: T positions, V vocabulary, Vp its padded rows, L layers, NH heads,
// C channels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
class Model;
}

namespace mt::llmc {

inline constexpr int64_t kHeaderBytes = 1024;
inline constexpr int64_t kVocabMultiple = 128;  // to which llm.c pads its vocabulary

enum class Version : int32_t { kF32 = 3, kBf16 = 5 };

struct Header {
  Version version = Version::kF32;
  int64_t positions = 0;     // T
  int64_t vocab = 0;         // V
  int64_t layers = 0;        // L
  int64_t heads = 0;         // NH
  int64_t hidden = 0;        // C
  int64_t padded_vocab = 0;  // Vp
};

// The type of a version's elements, "F32" or "BF16", and torch's name of it.
std::string_view TypeOf(Version version);
std::string_view TorchNameOf(Version version);

// A tensor of the file as llm.c names it, of all layers where it is one of the layers: "qkvw".
struct Stack {
  std::string_view name;
  int64_t elements = 0;
};
// The tensors in the order of the file, which they fill from kHeaderBytes on without gaps.
std::array<Stack, 16> StacksOf(const Header& header);

// The bytes of a file with this header.
int64_t FileBytes(const Header& header);

// Reads a header of arbitrary bytes; no size in it has been allocated or multiplied beyond int64.
// kInvalidArgument, with the offset of each word at fault: shorter than a header; no model file of
// llm.c (what it is, where llm.c has other files of that kind); sizes out of range, or that do not
// fit each other; words that llm.c leaves at zero. kFailedPrecondition: another version.
StatusOr<Header> ParseHeader(std::span<const std::byte> bytes);

// The kHeaderBytes bytes of a header.
std::string HeaderText(const Header& header);

// The model of a header, completed (hf::CompleteModel, and its errors): GPT-2's, with learned
// positions, LayerNorm of eps 1e-5, the tanh form of GELU, a feed-forward layer of 4 C, biases
// everywhere and tied embeddings.
StatusOr<std::shared_ptr<const megatrain::v1::Model>> ModelOf(const Header& header);

// The header of a completed model with a vocabulary, which is padded to kVocabMultiple.
// kFailedPrecondition, naming every field that llm.c's one network does not have ("model.norm:
// rmsnorm") and whether Hugging Face's classes have them. A model without biases is written with
// zeros.
StatusOr<Header> HeaderOf(const megatrain::v1::Model& model, Version version);

}  // namespace mt::llmc
