// config.json: what is written is read as the same model; old and new spellings; defaults of each
// family; what is refused, by name.
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/hf/hf_models.h"
#include "worker/hf/config_read.h"
#include "worker/hf/config_write.h"

namespace mt::hf {
namespace {

using megatrain::v1::Model;
using nlohmann::json;

json Gpt2Config() {
  return {{"model_type", "gpt2"},
          {"n_embd", 32},
          {"n_layer", 2},
          {"n_head", 4},
          {"n_positions", 64},
          {"vocab_size", 96},
          {"activation_function", "gelu_new"}};
}

json LlamaConfig(const std::string& type = "llama") {
  return {{"model_type", type},       {"hidden_size", 64},        {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"intermediate_size", 96},  {"vocab_size", 96},
          {"rms_norm_eps", 1e-5},     {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}

json NeoxConfig() {
  json out = LlamaConfig("gpt_neox");
  out["hidden_act"] = "gelu_new";
  out.erase("rms_norm_eps");
  out.erase("num_key_value_heads");
  return out;
}

HfConfig Read(const json& config) {
  auto read = ParseConfig(config.dump());
  EXPECT_TRUE(read.ok()) << read.status() << "\n" << config.dump(1);
  return read.ok() ? *std::move(read) : HfConfig{.model = std::make_shared<Model>()};
}

// One error that has every one of the texts.
void ExpectRefused(const json& config, const std::vector<std::string>& texts) {
  const Status status = ParseConfig(config.dump()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) << config;
  for (const std::string& text : texts)
    EXPECT_NE(base::Message(status).find(text), std::string::npos) << text << " in " << status;
}

json With(json config, const std::string& name, json value) {
  config[name] = std::move(value);
  return config;
}

TEST(ConfigWrite, IsReadAsTheSameModel) {
  for (const auto& [family, text] : ModelsOfFamilies()) {
    const auto job = JobOf(text);
    const auto written = ConfigText(
        {.model = &job.model(), .family = family, .dtype = "float32", .eos = int64_t{95}});
    ASSERT_TRUE(written.ok()) << written.status();
    const HfConfig read = Read(json::parse(*written));
    EXPECT_EQ(read.family, family);
    EXPECT_EQ(read.eos, 95);
    EXPECT_EQ(read.dtype, "float32");
    EXPECT_TRUE(read.notes.empty()) << fmt::format("{}", fmt::join(read.notes, "; "));
    const std::vector<std::string> differences = ModelDifferences(*read.model, job.model());
    // These classes always have biases; where the model has none they are zeros.
    const bool adds_biases =
        (family == Family::kGpt2 || family == Family::kGptNeox) && !job.model().bias();
    if (!adds_biases) {
      EXPECT_TRUE(differences.empty()) << text << fmt::format("{}", fmt::join(differences, "; "));
    }
  }
}

TEST(ConfigWrite, HasEveryFieldThatDefaultsDifferBy) {
  const auto job = JobOf(kLlamaModel);
  const json config = json::parse(
      ConfigText({.model = &job.model(), .family = Family::kLlama, .dtype = "bfloat16"}).value());
  for (const char* const name :
       {"architectures", "model_type", "dtype", "vocab_size", "hidden_size", "intermediate_size",
        "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act",
        "rms_norm_eps", "max_position_embeddings", "rope_parameters", "attention_bias", "mlp_bias",
        "tie_word_embeddings", "bos_token_id", "eos_token_id"}) {
    EXPECT_TRUE(config.contains(name)) << name;
  }
  EXPECT_FALSE(config.contains("rope_theta")) << "said once, in the dict";
  EXPECT_TRUE(config["rope_parameters"]["rope_theta"].is_number_float());
  EXPECT_TRUE(config["eos_token_id"].is_null()) << "GPT-2's default would be 50256";
  EXPECT_EQ(json::parse(GenerationConfigText(7))["eos_token_id"], 7);
}

TEST(ConfigWrite, GptNeoxAlwaysSaysItsShareOfRotatedChannels) {
  for (const double percent : {0.25, 0.3, 0.7, 1.0}) {
    const auto job = JobOf(fmt::format("position: rope, rope: {{percent: {}}}", percent));
    const auto text =
        ConfigText({.model = &job.model(), .family = Family::kGptNeox, .dtype = "float32"});
    const auto channels = static_cast<int64_t>(percent * 8);
    if (channels % 2 != 0) {
      EXPECT_NE(base::Message(text.status()).find("model.rope.percent"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.status();
    const double share = json::parse(*text)["rope_parameters"]["partial_rotary_factor"];
    EXPECT_EQ(static_cast<int64_t>(share * 8), channels);
  }
}

TEST(ConfigRead, RopeInItsOldAndNewSpelling) {
  const HfConfig top = Read(With(LlamaConfig(), "rope_theta", 500000));
  EXPECT_EQ(top.model->rope().base(), 500000);
  EXPECT_EQ(Read(LlamaConfig()).model->rope().base(), 10000);
  const json dict = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  EXPECT_EQ(Read(With(LlamaConfig(), "rope_parameters", dict)).model->rope().base(), 500000);
  const json scaled = {{"type", "linear"}, {"factor", 2.0}};
  // rope_scaling replaces rope_parameters as a whole, and type counts where rope_type is not.
  json old_form = With(With(LlamaConfig(), "rope_theta", 7000), "rope_scaling", scaled);
  EXPECT_EQ(Read(old_form).model->rope().base(), 7000);
  EXPECT_EQ(Read(old_form).model->rope().scaling().type(), Model::Rope::Scaling::TYPE_LINEAR);
  EXPECT_EQ(Read(old_form).model->rope().scaling().factor(), 2);
  old_form["rope_scaling"]["rope_type"] = "default";
  EXPECT_EQ(Read(old_form).model->rope().scaling().type(), Model::Rope::Scaling::TYPE_NONE);
  old_form["rope_scaling"] = json::object();  // empty: as if it were not there
  old_form["rope_parameters"] = {{"rope_theta", 7000}, {"rope_type", "default"}};
  EXPECT_EQ(Read(old_form).model->rope().base(), 7000);
}

TEST(ConfigRead, RopeThatIsSaidTwiceMustAgree) {
  const json dict = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  json both = With(With(LlamaConfig(), "rope_parameters", dict), "rope_theta", 10000.0);
  ExpectRefused(both, {"rope_theta", "500000", "10000"});
  both["rope_theta"] = 500000;
  EXPECT_EQ(Read(both).model->rope().base(), 500000);
  both["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  ExpectRefused(both, {"rope_scaling", "rope_parameters", "linear"});
}

TEST(ConfigRead, RopeOfLlama3) {
  json dict = {{"rope_theta", 500000.0},  {"rope_type", "llama3"},
               {"factor", 8.0},           {"low_freq_factor", 1.0},
               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  const HfConfig read = Read(With(LlamaConfig(), "rope_parameters", dict));
  EXPECT_EQ(read.model->rope().scaling().original_positions(), 8192);
  dict.erase("factor");
  ExpectRefused(With(LlamaConfig(), "rope_parameters", dict), {"factor", "missing"});
  dict["rope_type"] = "yarn";
  ExpectRefused(With(LlamaConfig(), "rope_parameters", dict), {"rope_type", "yarn"});
}

TEST(ConfigRead, GptNeoxReadsItsOwnNames) {
  EXPECT_EQ(Read(NeoxConfig()).model->rope().percent(), 0.25);
  json config = With(With(NeoxConfig(), "rotary_pct", 0.5), "rotary_emb_base", 5000);
  // Ignored there, as transformers ignores it.
  config["rope_theta"] = 7;
  config["partial_rotary_factor"] = 1.0;
  const HfConfig read = Read(config);
  EXPECT_EQ(read.model->rope().percent(), 0.5);
  EXPECT_EQ(read.model->rope().base(), 5000);
  const json dict = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  EXPECT_EQ(Read(With(NeoxConfig(), "rope_parameters", dict)).model->rope().percent(), 0.25);
}

TEST(ConfigRead, DefaultsAreThoseOfTheFamilyAndAreSaid) {
  for (const auto& [type, kv_heads] : std::vector<std::pair<std::string, int64_t>>{
           {"llama", 4}, {"mistral", 8}, {"qwen2", 32}, {"qwen3", 32}}) {
    json config = LlamaConfig(type);
    config.erase("num_key_value_heads");
    config["num_attention_heads"] = type == "llama" ? 4 : 32;
    config["hidden_size"] = 128;
    config["sliding_window"] = nullptr;
    const HfConfig read = Read(config);
    EXPECT_EQ(read.model->kv_heads(), kv_heads) << type;
    EXPECT_EQ(read.model->head_dim(), type == "qwen3" ? 128 : type == "llama" ? 32 : 4);
    EXPECT_NE(fmt::format("{}", fmt::join(read.notes, "; ")).find("num_key_value_heads"),
              std::string::npos);
    EXPECT_EQ(read.model->tie_embeddings(), false);
    config["num_key_value_heads"] = nullptr;
    EXPECT_EQ(Read(config).model->kv_heads(), config["num_attention_heads"].get<int64_t>());
  }
  EXPECT_TRUE(Read(Gpt2Config()).model->tie_embeddings());
  EXPECT_EQ(Read(Gpt2Config()).model->ffn_size(), 128);
}

TEST(ConfigRead, WindowsOfMistralAndQwen) {
  json mistral = With(LlamaConfig("mistral"), "max_position_embeddings", 8192);
  EXPECT_EQ(Read(mistral).model->window(), 4096) << "absent is the class's default";
  EXPECT_FALSE(Read(With(mistral, "sliding_window", nullptr)).model->has_window());
  EXPECT_FALSE(Read(With(mistral, "sliding_window", 8192)).model->has_window()) << "no limit";
  json qwen = With(LlamaConfig("qwen2"), "sliding_window", 16);
  EXPECT_FALSE(Read(qwen).model->has_window()) << "not used";
  qwen["use_sliding_window"] = true;
  EXPECT_FALSE(Read(qwen).model->has_window()) << "from layer 28 on";
  qwen["max_window_layers"] = 0;
  EXPECT_EQ(Read(qwen).model->window(), 16);
  qwen["max_window_layers"] = 1;
  ExpectRefused(qwen, {"window", "some layers"});
  qwen["layer_types"] = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(Read(qwen).model->window(), 16);
  qwen["layer_types"] = {"sliding_attention", "chunked_attention"};
  ExpectRefused(qwen, {"layer_types"});
}

TEST(ConfigRead, GeluIsTheExactFormByItsPlainName) {
  const auto activation = [](json config) { return Read(std::move(config)).model->activation(); };
  EXPECT_EQ(activation(Gpt2Config()), Model::ACTIVATION_GELU);
  EXPECT_EQ(activation(With(Gpt2Config(), "activation_function", "gelu")),
            Model::ACTIVATION_GELU_ERF);
  json neox = NeoxConfig();
  EXPECT_EQ(activation(neox), Model::ACTIVATION_GELU);
  neox.erase("hidden_act");
  EXPECT_EQ(activation(neox), Model::ACTIVATION_GELU_ERF) << "the class's default";
}

TEST(ConfigRead, WhatIsNotBuiltIsNamed) {
  ExpectRefused(With(Gpt2Config(), "activation_function", "gelu_10"),
                {"activation_function", "gelu_10", "gelu_new"});
  ExpectRefused(With(Gpt2Config(), "scale_attn_by_inverse_layer_idx", true),
                {"scale_attn_by_inverse_layer_idx"});
  ExpectRefused(With(Gpt2Config(), "architectures", json::array({"GPT2ForSequenceClassification"})),
                {"architectures", "GPT2ForSequenceClassification"});
  EXPECT_EQ(Read(With(Gpt2Config(), "architectures", json::array({"GPT2Model"}))).family,
            Family::kGpt2);
  ExpectRefused(With(LlamaConfig(), "quantization_config", json{{"bits", 4}}),
                {"quantization_config"});
  ExpectRefused(With(LlamaConfig(), "attention_bias", true), {"attention_bias", "mlp_bias"});
  ExpectRefused(With(LlamaConfig(), "hidden_act", "relu"), {"hidden_act", "relu"});
  ExpectRefused(With(LlamaConfig("qwen3"), "attention_bias", true), {"attention_bias"});
  ExpectRefused(With(NeoxConfig(), "attention_bias", false), {"attention_bias"});
  ExpectRefused(LlamaConfig("mixtral"), {"model_type", "mixtral", "llama"});
}

TEST(ConfigRead, TypesAndRangesAreStrict) {
  json config = With(LlamaConfig(), "num_hidden_layers", 2.0);
  config["rms_norm_eps"] = -1;
  config.erase("vocab_size");
  config["tie_word_embeddings"] = "yes";
  ExpectRefused(config, {"num_hidden_layers", "rms_norm_eps", "vocab_size", "tie_word_embeddings"});
  ExpectRefused(With(LlamaConfig(), "hidden_size", uint64_t{1} << 63), {"hidden_size"});
  ExpectRefused(With(LlamaConfig(), "head_dim", 15), {"head_dim"});
  EXPECT_FALSE(ParseConfig("").ok());
  EXPECT_FALSE(ParseConfig("[]").ok());
  EXPECT_FALSE(ParseConfig(std::string(100'000, '[')).ok());
  EXPECT_FALSE(ParseConfig(std::string(kMaxConfigBytes + 1, ' ')).ok());
}

TEST(ConfigRead, TokensAndTypesAsTheyAreWritten) {
  json config = With(LlamaConfig(), "eos_token_id", json::array({5, 6}));
  config["torch_dtype"] = "float16";
  EXPECT_EQ(Read(config).eos, 5);
  EXPECT_EQ(Read(config).dtype, "float16");
  EXPECT_EQ(Read(With(config, "dtype", "bfloat16")).dtype, "bfloat16");
  EXPECT_FALSE(Read(With(config, "eos_token_id", 96)).eos.has_value());
}

TEST(ModelDifferences, NameFieldAndBothValues) {
  const auto job = JobOf(kLlamaModel + ", rope: {base: 500000}");
  const auto other = JobOf(kLlamaModel + ", rope: {base: 10000}, kv_heads: 2");
  const auto differences = ModelDifferences(other.model(), job.model());
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0], "model.kv_heads: config.json has 2, the job 4");
  EXPECT_EQ(differences[1], "model.rope.base: config.json has 10000, the job 500000");
}

}  // namespace
}  // namespace mt::hf
