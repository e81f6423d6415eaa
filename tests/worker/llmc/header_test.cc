// The header of llm.c's model files, word by word; which models have one, and which are refused by
// field; the tensors that follow it.
#include "worker/llmc/header.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/job.pb.h"
#include "tests/worker/hf/hf_models.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/hf/config_read.h"
#include "worker/hf/family.h"
#include "worker/llmc/tensors.h"

namespace mt::llmc {
namespace {

using hf::JobOf;

// The words of gpt2_124M.bin.
std::array<int32_t, 256> Gpt2Words() { return {20240326, 3, 1024, 50257, 12, 12, 768, 50304}; }

StatusOr<Header> Parse(const std::array<int32_t, 256>& words) {
  return ParseHeader(std::as_bytes(std::span(words)));
}

void ExpectFault(size_t word, int32_t value, const std::vector<std::string>& texts) {
  std::array<int32_t, 256> words = Gpt2Words();
  words[word] = value;
  const Status status = Parse(words).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) << status;
  for (const std::string& text : texts)
    EXPECT_NE(base::Message(status).find(text), std::string::npos) << text << " in " << status;
}

TEST(LlmcHeader, OfGpt2) {
  const auto header = Parse(Gpt2Words());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->positions, 1024);
  EXPECT_EQ(header->vocab, 50257);
  EXPECT_EQ(header->padded_vocab, 50304);
  // 124,475,904 parameters with the padding, as llm.c prints.
  EXPECT_EQ(FileBytes(*header), 1024 + 4 * int64_t{124475904});
  const auto model = ModelOf(*header);
  ASSERT_TRUE(model.ok()) << model.status();
  auto job = JobOf("max_positions: 1024");
  job.mutable_model()->set_layers(12);
  job.mutable_model()->set_hidden_size(768);
  job.mutable_model()->set_heads(12);
  job.mutable_model()->set_kv_heads(12);
  job.mutable_model()->set_head_dim(64);
  job.mutable_model()->set_ffn_size(3072);
  job.mutable_model()->set_vocab_size(50257);
  EXPECT_EQ(hf::ModelDifferences(**model, job.model()), std::vector<std::string>());
  const auto again = HeaderOf(**model, Version::kF32);
  ASSERT_TRUE(again.ok()) << again.status();
  const std::array<int32_t, 256> words = Gpt2Words();
  const std::string text = HeaderText(*again);
  ASSERT_EQ(text.size(), sizeof(words));
  EXPECT_EQ(std::memcmp(text.data(), words.data(), text.size()), 0);
}

TEST(LlmcHeader, EachWordAtFaultIsNamedWithItsOffset) {
  ExpectFault(0, 7, {"begins with 7", "20240326"});
  ExpectFault(0, 20240520, {"shard of tokens", "mtctl data import"});
  ExpectFault(0, 20240328, {"tokenizer"});
  ExpectFault(0, 20240527, {"optimizer's state", "model_*.bin"});
  ExpectFault(0, 20240803,
              {"model file of llm.c's Llama 3, which is not read", "Hugging Face folder"});
  ExpectFault(1, 2, {"version 2", "at byte 4", "train_gpt2.py"});
  ExpectFault(2, 0, {"maximum sequence length at byte 8 is 0"});
  ExpectFault(3, -1, {"vocabulary at byte 12 is -1"});
  ExpectFault(4, 2000000000, {"layers at byte 16 is 2000000000"});
  ExpectFault(5, 0, {"heads at byte 20 is 0"});
  ExpectFault(6, 2097152, {"channels at byte 24"});
  ExpectFault(5, 7, {"768 channels (at byte 24) are not divisible by 7 heads (at byte 20)"});
  ExpectFault(7, 50256, {"padded vocabulary 50256 (at byte 28)", "50257 (at byte 12)"});
  ExpectFault(255, 1, {"1 stands at byte 1020"});
  // All sizes at once.
  std::array<int32_t, 256> words = Gpt2Words();
  words[4] = words[5] = -3;
  const std::string all = base::Message(Parse(words).status());
  EXPECT_NE(all.find("byte 16"), std::string::npos) << all;
  EXPECT_NE(all.find("byte 20"), std::string::npos) << all;
  const std::vector<std::byte> bytes(1023);
  EXPECT_NE(base::Message(ParseHeader(bytes).status()).find("1023 bytes"), std::string::npos);
}

// The largest that a header can say is a number all the same.
TEST(LlmcHeader, NoSizeOverflows) {
  std::array<int32_t, 256> words = Gpt2Words();
  words[2] = 16777216;
  words[3] = words[7] = 268435456;
  words[4] = 16384;
  words[5] = 65536;
  words[6] = 1048576;
  const auto header = Parse(words);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_GT(FileBytes(*header), int64_t{1} << 59);
}

TEST(LlmcHeader, OtherNetworksAreRefusedByField) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"position: rope", "model.position: rope (it has learned)"},
      {"position: alibi", "model.position: alibi"},
      {"norm: rmsnorm", "model.norm: rmsnorm"},
      {"norm_eps: 1e-6", "model.norm_eps: 1e-06"},
      {"activation: gelu_erf", "model.activation: gelu_erf (it has gelu"},
      {"activation: swiglu", "model.activation: swiglu"},
      {"ffn_size: 96", "model.ffn_size: 96"},
      {"kv_heads: 2", "model.kv_heads: 2 (it has as many as heads, 4)"},
      {"head_dim: 16", "model.head_dim: 16"},
      {"qk_norm: true", "model.qk_norm"},
      {"window: 8", "model.window: 8"},
      {"parallel_residual: true", "model.parallel_residual"},
      {"tie_embeddings: false", "model.tie_embeddings"}};
  for (const auto& [model, field] : refused) {
    const Status status = HeaderOf(JobOf(model).model(), Version::kF32).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << model << status;
    EXPECT_NE(base::Message(status).find(field), std::string::npos) << status;
    // What it says of the other format is so.
    EXPECT_EQ(base::Message(status).find("--format hf") != std::string::npos,
              hf::FamilyOf(JobOf(model).model()).ok())
        << status;
  }
  const Status status = HeaderOf(JobOf(hf::kLlamaModel).model(), Version::kBf16).status();
  for (const char* const field : {"model.position", "model.norm", "model.norm_eps",
                                  "model.activation", "model.ffn_size", "model.tie_embeddings"})
    EXPECT_NE(base::Message(status).find(field), std::string::npos) << field << status;
}

// Each row of each parameter lies in one place, and the tensors fill the stacks that the header
// counts; without biases zeros stand there.
TEST(LlmcTensors, HoldEveryRowOfEveryParameter) {
  for (const std::string& text : std::vector<std::string>{
           "position: learned", "bias: false", "bias: false, qkv_bias: true", "no padding"}) {
    auto job = JobOf(text == "no padding" ? "position: learned" : text);
    if (text == "no padding") job.mutable_model()->set_vocab_size(128);
    const auto header = HeaderOf(job.model(), Version::kBf16);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->padded_vocab, 128);
    const std::vector<hf::HfTensor> tensors = TensorsOf(job.model(), *header);
    std::vector<std::pair<std::string, int64_t>> stacks;  // name, elements
    for (const hf::HfTensor& tensor : tensors) {
      const std::string name = tensor.name.substr(0, tensor.name.find('['));
      if (stacks.empty() || stacks.back().first != name) stacks.emplace_back(name, 0);
      stacks.back().second += checkpoint::TensorBytes("BF16", tensor.shape) / 2;
    }
    ASSERT_EQ(stacks.size(), StacksOf(*header).size());
    for (size_t i = 0; i < stacks.size(); ++i) {
      EXPECT_EQ(stacks[i].first, StacksOf(*header)[i].name);
      EXPECT_EQ(stacks[i].second, StacksOf(*header)[i].elements) << stacks[i].first;
    }
    const auto sources = hf::SourcesOf(tensors);
    const auto parameters = hf::ParametersOf(job.model());
    EXPECT_EQ(sources.size(), parameters.size()) << text;
    for (const auto& [name, shape] : parameters) {
      ASSERT_TRUE(sources.contains(name)) << text << " " << name;
      int64_t next = 0;
      for (const hf::Source& source : sources.at(name)) {
        EXPECT_EQ(source.first, next) << name;
        next += source.count;
        if (shape.size() == 2) {
          EXPECT_EQ(shape[1], source.tensor->shape.at(1)) << name;
        }
      }
      EXPECT_EQ(next, shape[0]) << name;
    }
  }
}

}  // namespace
}  // namespace mt::llmc
