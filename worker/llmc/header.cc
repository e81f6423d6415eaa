// llm.c's loaders check the magic and the version alone, and read the rest as it comes. Here each
// word has to be one that they can mean.
#include "worker/llmc/header.h"

#include <bit>
#include <cstring>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/plain_text.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/hf/config_read.h"
#include "worker/hf/family.h"

namespace mt::llmc {
namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

using megatrain::v1::Model;

constexpr size_t kWords = kHeaderBytes / 4;
using Words = std::array<int32_t, kWords>;

constexpr int32_t kMagic = 20240326;
// The eps of every LayerNorm of llm.c, in single precision.
constexpr double kEps = 1e-5;

// Other files of llm.c, which begin alike; and where the model is.
struct OtherFile {
  int32_t magic;
  std::string_view what;
};
constexpr OtherFile kOtherFiles[] = {
    {20240327,
     "a debug state of llm.c (activations and gradients), and no model file: gpt2_124M.bin beside "
     "gpt2_124M_debug_state.bin is one"},
    {20240328, "a tokenizer of llm.c, and no model file"},
    {20240520, "a shard of tokens of llm.c, and no model file: mtctl data import reads it"},
    {20240522, "an evaluation of llm.c, and no model file"},
    {20240527,
     "an optimizer's state of llm.c, and no model file: the weights are in model_*.bin beside it"},
    {20240801, "a shard of tokens of llm.c, and no model file: mtctl data import reads it"},
    {20240803,
     "a model file of llm.c's Llama 3, which is not read: its header does not hold eps and the "
     "feed-forward size; import the Hugging Face folder of the model instead"}};

// A word that says a size, and the ranges of job_training.proto, within which no product of three
// overflows.
struct SizeWord {
  size_t word;
  std::string_view name;
  int64_t Header::*field;
  int64_t max;
};
constexpr SizeWord kSizes[] = {{2, "maximum sequence length", &Header::positions, 16777216},
                               {3, "vocabulary", &Header::vocab, 268435456},
                               {4, "layers", &Header::layers, 16384},
                               {5, "heads", &Header::heads, 65536},
                               {6, "channels", &Header::hidden, 1048576},
                               {7, "padded vocabulary", &Header::padded_vocab, 268435456 + 65536}};
constexpr size_t kFirstZero = 8;  // from here on words are 0

std::string At(size_t word) { return fmt::format("at byte {}", 4 * word); }

Status CheckKind(const Words& words) {
  if (words[0] != kMagic) {
    for (const OtherFile& other : kOtherFiles) {
      if (other.magic == words[0]) return base::InvalidArgument("it is {}", other.what);
    }
    return base::InvalidArgument(
        "it is no model file of llm.c: it begins with {} where such a file has {}", words[0],
        kMagic);
  }
  if (words[1] == static_cast<int32_t>(Version::kF32) ||
      words[1] == static_cast<int32_t>(Version::kBf16)) {
    return OkStatus();
  }
  return base::FailedPrecondition(
      "it is a model file of llm.c of version {} ({}): versions 3 (float32) and 5 (bfloat16), both "
      "with a padded vocabulary, are read; a current train_gpt2.py of llm.c writes them",
      words[1], At(1));
}

void CheckFit(const Header& header, std::vector<std::string>* faults) {
  if (header.hidden % header.heads != 0) {
    faults->push_back(fmt::format("{} channels ({}) are not divisible by {} heads ({})",
                                  header.hidden, At(6), header.heads, At(5)));
  }
  if (header.padded_vocab < header.vocab) {
    faults->push_back(
        fmt::format("the padded vocabulary {} ({}) is less than the vocabulary {} ({})",
                    header.padded_vocab, At(7), header.vocab, At(3)));
  }
}

// Fields that llm.c's network does not have, as the job has them.
std::vector<std::string> FieldsBeside(const Model& m) {
  std::vector<std::string> out;
  const auto refuse = [&](bool refused, std::string text) {
    if (refused) out.push_back(std::move(text));
  };
  refuse(m.position() != Model::POSITION_LEARNED,
         fmt::format("model.position: {} (it has learned)",
                     hf::JobWord(Model::Position_Name(m.position()))));
  refuse(m.norm() != Model::NORM_LAYERNORM, "model.norm: rmsnorm (it has layernorm)");
  refuse(static_cast<float>(m.norm_eps()) != static_cast<float>(kEps),
         fmt::format("model.norm_eps: {} (it has 1e-05)", m.norm_eps()));
  refuse(m.activation() != Model::ACTIVATION_GELU,
         fmt::format("model.activation: {} (it has gelu, the tanh form)",
                     hf::JobWord(Model::Activation_Name(m.activation()))));
  refuse(spec::FfnSize(m) != 4 * m.hidden_size(),
         fmt::format("model.ffn_size: {} (it has 4 hidden_size)", spec::FfnSize(m)));
  refuse(
      spec::KvHeads(m) != m.heads(),
      fmt::format("model.kv_heads: {} (it has as many as heads, {})", spec::KvHeads(m), m.heads()));
  refuse(spec::HeadDim(m) * m.heads() != m.hidden_size(),
         fmt::format("model.head_dim: {} (it has hidden_size / heads)", spec::HeadDim(m)));
  refuse(m.qk_norm(), "model.qk_norm: true");
  refuse(m.window() > 0, fmt::format("model.window: {}", m.window()));
  refuse(m.parallel_residual(), "model.parallel_residual: true");
  refuse(!m.tie_embeddings(), "model.tie_embeddings: false");
  return out;
}

}  // namespace

std::string_view TypeOf(Version version) { return version == Version::kF32 ? "F32" : "BF16"; }

std::string_view TorchNameOf(Version version) {
  return version == Version::kF32 ? "float32" : "bfloat16";
}

std::array<Stack, 16> StacksOf(const Header& header) {
  const int64_t c = header.hidden, l = header.layers;
  return {{{"wte", header.padded_vocab * c},
           {"wpe", header.positions * c},
           {"ln1w", l * c},
           {"ln1b", l * c},
           {"qkvw", l * 3 * c * c},
           {"qkvb", l * 3 * c},
           {"attprojw", l * c * c},
           {"attprojb", l * c},
           {"ln2w", l * c},
           {"ln2b", l * c},
           {"fcw", l * 4 * c * c},
           {"fcb", l * 4 * c},
           {"fcprojw", l * 4 * c * c},
           {"fcprojb", l * c},
           {"lnfw", c},
           {"lnfb", c}}};
}

int64_t FileBytes(const Header& header) {
  int64_t elements = 0;
  for (const Stack& stack : StacksOf(header)) elements += stack.elements;
  return kHeaderBytes + elements * checkpoint::ElementSize(TypeOf(header.version));
}

StatusOr<Header> ParseHeader(std::span<const std::byte> bytes) {
  if (std::ssize(bytes) < kHeaderBytes) {
    return base::InvalidArgument(
        "it has {} bytes, and the header of a model file of llm.c alone has {}: it was cut, or is "
        "none",
        bytes.size(), kHeaderBytes);
  }
  Words words{};
  std::memcpy(words.data(), bytes.data(), sizeof(words));
  RETURN_IF_ERROR(CheckKind(words));
  Header header{.version = static_cast<Version>(words[1])};
  std::vector<std::string> faults;
  for (const SizeWord& size : kSizes) {
    header.*size.field = words[size.word];
    if (words[size.word] >= 1 && words[size.word] <= size.max) continue;
    faults.push_back(fmt::format("the {} {} is {}: it is from 1 to {}", size.name, At(size.word),
                                 words[size.word], size.max));
  }
  for (size_t word = kFirstZero; word < kWords; ++word) {
    if (words[word] == 0) continue;
    faults.push_back(fmt::format("{} stands {}, where llm.c leaves zeros", words[word], At(word)));
    break;
  }
  if (faults.empty()) CheckFit(header, &faults);
  if (!faults.empty()) return base::InvalidArgument("its header: {}", fmt::join(faults, "; "));
  return header;
}

std::string HeaderText(const Header& header) {
  Words words{};
  words[0] = kMagic;
  words[1] = static_cast<int32_t>(header.version);
  for (const SizeWord& size : kSizes)
    words[size.word] = base::CheckedCast<int32_t>(header.*size.field);
  std::string text(sizeof(words), '\0');
  std::memcpy(text.data(), words.data(), sizeof(words));
  return text;
}

StatusOr<std::shared_ptr<const Model>> ModelOf(const Header& header) {
  Model model;
  model.set_layers(header.layers);
  model.set_hidden_size(header.hidden);
  model.set_heads(header.heads);
  model.set_ffn_size(4 * header.hidden);
  model.set_vocab_size(header.vocab);
  model.set_max_positions(header.positions);
  model.set_position(Model::POSITION_LEARNED);
  model.set_norm(Model::NORM_LAYERNORM);
  model.set_norm_eps(kEps);
  model.set_activation(Model::ACTIVATION_GELU);
  model.set_bias(true);
  model.set_qkv_bias(true);
  model.set_tie_embeddings(true);
  return hf::CompleteModel(model);
}

StatusOr<Header> HeaderOf(const Model& model, Version version) {
  const std::vector<std::string> fields = FieldsBeside(model);
  if (!fields.empty()) {
    return base::FailedPrecondition(
        "llm.c's network is GPT-2's, and has no {}: this model cannot be exported as llm.c's{}",
        fmt::join(fields, ", no "),
        hf::FamilyOf(model).ok() ? "; --format hf writes it as a folder for transformers" : "");
  }
  return Header{.version = version,
                .positions = spec::MaxPositions(model),
                .vocab = model.vocab_size(),
                .layers = model.layers(),
                .heads = model.heads(),
                .hidden = model.hidden_size(),
                .padded_vocab = base::RoundUp(model.vocab_size(), kVocabMultiple)};
}

}  // namespace mt::llmc
