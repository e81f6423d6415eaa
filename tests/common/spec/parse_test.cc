// Text to JobSpec: what is accepted, and the messages for what is not.
#include "common/spec/parse.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/spec/known_words.h"
#include "common/spec/print.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

std::string ParseFaults(std::string_view text, const std::vector<std::string>& overrides = {}) {
  v1::JobSpec job;
  return FormatFaults(ParseJob(text, overrides, &job));
}

TEST(Parse, ReadsEveryKindOfValue) {
  v1::JobSpec job;
  const Faults faults = ParseJob(R"(
name: gpt-demo
labels: {team: research, tier: "1"}
model: {layers: 12, norm_eps: 1.0e-5, position: learned, scaled_init: false}
data: {path: [0.3, a, 0.7, b], split: [969, 30, 1], tokenizer: {type: byte}}
training: {train_tokens: 1.5B, eval: {every_iters: 1K}}
checkpoint: {every: 1h30m}
parallel: {bucket_size: 64MiB, data: auto}
optimizer: {warmup: 5%, decay_over: 1M}
telemetry: {profile: {ranks: "0, 3"}}
)",
                                 {}, &job);
  EXPECT_EQ(FormatFaults(faults), "");
  EXPECT_EQ(job.name(), "gpt-demo");
  EXPECT_EQ(job.labels().at("tier"), "1");
  EXPECT_EQ(job.model().layers(), 12);
  EXPECT_DOUBLE_EQ(job.model().norm_eps(), 1e-5);
  EXPECT_EQ(job.model().position(), v1::Model::POSITION_LEARNED);
  EXPECT_TRUE(job.model().has_scaled_init());
  EXPECT_FALSE(job.model().scaled_init());
  ASSERT_EQ(job.data().path_size(), 2);
  EXPECT_DOUBLE_EQ(job.data().path(1).weight(), 0.7);
  EXPECT_EQ(job.data().path(1).prefix(), "b");
  EXPECT_EQ(job.data().split(), "969,30,1");
  EXPECT_EQ(job.training().train_tokens(), 1'500'000'000);
  EXPECT_EQ(job.training().eval().every_iters(), 1000);
  EXPECT_EQ(job.checkpoint().every(), 5'400'000);
  EXPECT_EQ(job.parallel().bucket_size(), 64LL << 20);
  EXPECT_FALSE(job.parallel().has_data());
  EXPECT_EQ(job.optimizer().decay_over(), "1000000");
  ASSERT_EQ(job.telemetry().profile().ranks_size(), 2);
  EXPECT_EQ(job.telemetry().profile().ranks(1), 3);
  EXPECT_FALSE(job.has_namespace_());  // parsing sets no defaults
}

TEST(Parse, DataSetsAsOneString) {
  v1::JobSpec job;
  EXPECT_TRUE(ParseJob("data: {train: \"a, b, c\", valid: v}", {}, &job).empty());
  ASSERT_EQ(job.data().train_size(), 3);
  EXPECT_EQ(job.data().train(1).prefix(), "b");
  EXPECT_FALSE(job.data().train(1).has_weight());
  EXPECT_EQ(job.data().valid(0).prefix(), "v");
}

TEST(Parse, ReadsJson) {
  v1::JobSpec job;
  EXPECT_EQ(FormatFaults(ParseJob(
                R"({"name": "x", "model": {"layers": 3, "bias": true}, "labels": {"a": "\u00e9"}})",
                {}, &job)),
            "");
  EXPECT_EQ(job.model().layers(), 3);
  EXPECT_EQ(job.labels().at("a"), "\xC3\xA9");
}

TEST(Parse, NullAutoAndNoneUnset) {
  v1::JobSpec job;
  const Faults faults = ParseJob(
      "name:\nmodel: {layers: ~, window: none, ffn_size: auto}\ncheckpoint: {directory: none, "
      "load: auto}",
      {}, &job);
  EXPECT_EQ(FormatFaults(faults), "");
  EXPECT_FALSE(job.has_name());
  EXPECT_FALSE(job.model().has_layers());
  EXPECT_FALSE(job.model().has_window());
  EXPECT_FALSE(job.model().has_ffn_size());
  EXPECT_EQ(job.checkpoint().directory(), "none");  // none is a value here: no checkpoints
  EXPECT_EQ(ParseFaults("model: {layers: auto}"),
            "model.layers: expected a whole number, got \"auto\"");
  EXPECT_EQ(ParseFaults("training: {seed: none}"),
            "training.seed: expected a whole number, got \"none\"");
}

TEST(Parse, TheTokenizerCalledNull) {
  v1::JobSpec job;
  for (const char* text :
       {"data: {tokenizer: {type: null}}", "data: {tokenizer: {type: \"null\"}}"}) {
    EXPECT_EQ(FormatFaults(ParseJob(text, {}, &job)), "");
    EXPECT_EQ(job.data().tokenizer().type(), v1::Data::Tokenizer::TYPE_NULL) << text;
  }
}

TEST(Parse, OverridesWinInOrder) {
  v1::JobSpec job;
  const Faults faults =
      ParseJob("training: {train_iters: 5}\nname: a",
               {"training.train_iters=7", "training.train_iters=9", "model={layers: 2}",
                "model.heads=4", "data.path=[p]", "training.seed=", "name=b"},
               &job);
  EXPECT_EQ(FormatFaults(faults), "");
  EXPECT_EQ(job.training().train_iters(), 9);
  EXPECT_EQ(job.model().layers(), 2);
  EXPECT_EQ(job.model().heads(), 4);
  EXPECT_EQ(job.data().path(0).prefix(), "p");
  EXPECT_FALSE(job.training().has_seed());
  EXPECT_EQ(job.name(), "b");
}

TEST(Parse, BadOverrides) {
  EXPECT_EQ(ParseFaults("name: a", {"training"}),
            "--set training: write it as section.field=value");
  EXPECT_EQ(ParseFaults("name: a", {"name.x=1"}),
            "--set name.x: what stands above \"x\" is no section");
  EXPECT_EQ(ParseFaults("name: a", {"a..b=1"}), "--set a..b: no such field");
  EXPECT_EQ(ParseFaults("name: a", {"trainig.seed=1"}),
            "trainig: unknown field; did you mean training?");
  EXPECT_NE(ParseFaults("name: a", {"name=[1"}).find("--set name: "), std::string::npos);
}

TEST(Parse, UnknownFieldsNameTheNearest) {
  EXPECT_EQ(ParseFaults("model: {hiden_size: 3}"),
            "model.hiden_size: unknown field; did you mean hidden_size?");
  EXPECT_EQ(ParseFaults("training: {min_lr: 1}"),
            "training.min_lr: unknown field; did you mean optimizer.min_lr?");
  EXPECT_EQ(ParseFaults("bench: {zzzzzzzz: 1}"),
            "bench.zzzzzzzz: unknown field; `mtctl explain job.bench` lists what there is");
  EXPECT_EQ(ParseFaults("zzzzzzzz: 1"),
            "zzzzzzzz: unknown field; `mtctl explain job` lists what there is");
  EXPECT_EQ(ParseFaults("model: {weight_decy: 3}"),
            "model.weight_decy: unknown field; did you mean optimizer.weight_decay?");
}

TEST(Parse, TheWordsOfOtherProgramsAreKnown) {
  EXPECT_EQ(ParseFaults("model: {n_layer: 3}"),
            "model.n_layer: unknown field; did you mean model.layers?");
  EXPECT_EQ(ParseFaults("learning_rate: 3"),
            "learning_rate: unknown field; did you mean optimizer.lr?");
  // Megatron's arguments are those that the fields declare.
  EXPECT_EQ(ParseFaults("model: {num-layers: 3}"),
            "model.num-layers: unknown field; did you mean model.layers?");
  EXPECT_EQ(ParseFaults("", {"parallel.tensor_model_parallel_size=2"}),
            "parallel.tensor_model_parallel_size: unknown field; did you mean parallel.tensor?");
  EXPECT_EQ(ParseFaults("training: {precision: bfloat16}"),
            "training.precision: no value \"bfloat16\"; did you mean bf16?");
  EXPECT_EQ(ParseFaults("model: {activation: silu}"),
            "model.activation: no value \"silu\"; did you mean swiglu?");
  // A word that another field's values have is not suggested here.
  EXPECT_EQ(ParseFaults("model: {norm: silu}"),
            "model.norm: expected one of layernorm, rmsnorm, got \"silu\"");
}

// A table that names what a job file does not have would send users nowhere.
TEST(KnownWords, LeadToFieldsAndValuesThatExist) {
  for (const char* word :
       {"n_embd", "block_size", "max_iters", "restart_policy", "--lr", "dtype"}) {
    const std::string path = FieldCalled(word);
    EXPECT_FALSE(path.empty()) << word;
    EXPECT_TRUE(Explain(path).ok()) << path;
  }
  EXPECT_EQ(FieldCalled("nonsense"), "");
  EXPECT_EQ(FieldCalled(""), "");
  EXPECT_EQ(ValueCalled("Float16"), "fp16");
}

TEST(Parse, IllTypedValuesSayWhatIsExpected) {
  EXPECT_EQ(ParseFaults("model: {layers: twelve}"),
            "model.layers: expected a whole number, got \"twelve\"");
  EXPECT_EQ(ParseFaults("model: {layers: 1.5}"),
            "model.layers: expected a whole number, got \"1.5\"");
  EXPECT_EQ(ParseFaults("model: {layers: [1]}"),
            "model.layers: expected one value, not a list or section");
  EXPECT_EQ(ParseFaults("model: 3"), "model: expected a section: fields with values");
  EXPECT_EQ(ParseFaults("model: {bias: yes}"), "model.bias: expected true or false, got \"yes\"");
  EXPECT_EQ(ParseFaults("optimizer: {lr: .nan}"),
            "optimizer.lr: expected a finite number, got \".nan\"");
  EXPECT_EQ(ParseFaults("optimizer: {decay: cosin}"),
            "optimizer.decay: no value \"cosin\"; did you mean cosine?");
  EXPECT_EQ(ParseFaults("optimizer: {decay: quick}"),
            "optimizer.decay: expected one of constant, linear, cosine, inverse_sqrt, wsd, got "
            "\"quick\"");
  EXPECT_EQ(ParseFaults("checkpoint: {every: 90}"),
            "checkpoint.every: expected a duration such as 90s, 15m or 2h, got \"90\"");
  EXPECT_EQ(ParseFaults("name: Bad_Name"),
            "name: expected 1 to 63 of a-z, 0-9 and -, got \"Bad_Name\"");
  EXPECT_EQ(ParseFaults("labels: [a]"), "labels: expected a map of words to words");
  EXPECT_EQ(ParseFaults(R"(labels: {a: "\e[2J"})"),
            "labels.a: has a control character, or is no UTF-8");
  EXPECT_EQ(ParseFaults(R"(labels: {"a\e": "\e", b: c})"),
            "labels.a?: has a control character, or is no UTF-8");
  EXPECT_EQ(ParseFaults("data: {path: [[a]]}"), "data.path: expected a list of single values");
  EXPECT_EQ(ParseFaults("model: {preset: gpt2-125m}"),
            "model.preset: no preset \"gpt2-125m\"; did you mean gpt2-124m?");
  EXPECT_EQ(ParseFaults("model: {preset: behemoth}"),
            "model.preset: expected a preset (`mtctl get presets` lists them), got \"behemoth\"");
}

TEST(Parse, RefusesWhatAJobNeedsNot) {
  EXPECT_EQ(ParseFaults("a: &x 1\nb: *x"), "line 1: anchors and aliases are not accepted");
  EXPECT_EQ(ParseFaults("name: !!str a"), "line 1: tags are not accepted");
  EXPECT_EQ(ParseFaults("name: a\nname: b"), "line 2: \"name\" is given twice");
  EXPECT_EQ(ParseFaults("name: a\n---\nname: b"), "more than one document; give one job");
  EXPECT_EQ(ParseFaults("just words"), "expected a job: fields with values");
  EXPECT_EQ(ParseFaults(std::string(100, '[')).substr(0, 6), "line 1");
  EXPECT_EQ(ParseFaults(std::string(kMaxTextBytes + 1, ' ')),
            "the text has 1048577 bytes; at most 1048576 are accepted");
  EXPECT_EQ(ParseFaults("name: \"\xff\""), "the text is not UTF-8");
  EXPECT_EQ(ParseFaults("model: {moe: {experts: 8, top_k: 2}}"),
            "model.moe.experts: not supported yet\nmodel.moe.top_k: not supported yet");
}

TEST(Parse, AllFaultsAtOnceAndBounded) {
  EXPECT_EQ(ParseFaults("name: X\nmodel: {layers: a, heads: b}\nfoo: 1").find("foo: unknown field"),
            ParseFaults("name: X\nmodel: {layers: a, heads: b}\nfoo: 1").rfind('\n') + 1);
  std::string many;
  for (int i = 0; i < 500; ++i) many += "qqqqqqqqqqq" + std::to_string(i) + ": 1\n";
  v1::JobSpec job;
  const Faults faults = ParseJob(many, {}, &job);
  ASSERT_EQ(faults.size(), 101u);
  EXPECT_EQ(faults.back().message, "and 400 more");
}

TEST(Parse, Files) {
  v1::JobSpec job;
  const Faults missing = LoadJobFile("/nonexistent/job.yaml", {}, {}, &job);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].path, "/nonexistent/job.yaml");
  const std::string path = testing::TempDir() + "/parse_test_job.yaml";
  ASSERT_TRUE(base::WriteFileAtomic(path, kJob).ok());
  EXPECT_EQ(FormatFaults(LoadJobFile(path, {"name=other"}, {}, &job)), "");
  EXPECT_EQ(job.name(), "other");
}

}  // namespace
}  // namespace mt::spec
