// A job printed as text and read again, and the texts of job.proto about its fields.
#include "common/spec/print.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "common/spec/rules.h"
#include "common/spec/values.h"
#include "megatrain/v1/options.pb.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

const std::vector<std::string> kMuchGiven = {
    "labels={\"we: ird\": \"null\", b: \"q\\\"uote\\\\ \\u00e9\\n\", a: \"12\"}",
    "checkpoint={directory: none}",
    "data.path=[0.25, \"odd name, with: marks\"]",
    "optimizer={lr: 1e-3, eps: 1.5e-12, warmup: 5%}",
    "resilience.timeouts.comm_init=90s",
    "model={preset: tiny, vocab_size: 99}",
    "data.tokenizer.type=null",
    "training.deterministic=true"};

Loaded MuchGiven() {
  // Control characters are refused, so the label loses its line break.
  std::vector<std::string> overrides = kMuchGiven;
  overrides[0].erase(overrides[0].find("\\n"), 2);
  return Load(overrides);
}

TEST(Print, YamlRoundTrips) {
  for (const Loaded& loaded : {Load(), MuchGiven()}) {
    ASSERT_EQ(FormatFaults(loaded.faults), "");
    v1::JobSpec again;
    ASSERT_EQ(FormatFaults(LoadJob(ToYaml(loaded.job), {}, {}, &again)), "") << ToYaml(loaded.job);
    EXPECT_EQ(ToJson(again), ToJson(loaded.job));
  }
}

TEST(Print, JsonRoundTripsExactly) {
  for (const Loaded& loaded : {Load(), MuchGiven()}) {
    v1::JobSpec again;
    ASSERT_EQ(FormatFaults(ParseJob(ToJson(loaded.job), {}, &again)), "") << ToJson(loaded.job);
    EXPECT_EQ(ToJson(again), ToJson(loaded.job));
  }
}

TEST(Print, Forms) {
  const Loaded loaded = MuchGiven();
  const std::string yaml = ToYaml(loaded.job);
  EXPECT_EQ(yaml.substr(0, 11), "name: demo\n");
  EXPECT_NE(yaml.find("    comm_init: 90s\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("  path: [0.25, \"odd name, with: marks\"]\n"), std::string::npos);
  EXPECT_EQ(yaml.find("rope"), std::string::npos);  // nothing that this job does not use
  EXPECT_EQ(yaml.find("loss_scale"), std::string::npos);
  EXPECT_EQ(yaml.find("wsd"), std::string::npos);
  EXPECT_EQ(yaml.find("bench"), std::string::npos);
  EXPECT_NE(ToYaml(Load({"kind=bench"}).job).find("bench:\n  warmup: 10\n"), std::string::npos);
  EXPECT_NE(yaml.find("    infra_per_hour: 10\n"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("min_data_parallel"), std::string::npos);  // nothing that is not built
  EXPECT_NE(ToYaml(LoadOnCpu().job).find("  zero_stage: 0\n"), std::string::npos);
  EXPECT_NE(yaml.find("  schedule: 1f1b\n"), std::string::npos);
  EXPECT_NE(yaml.find("deterministic: true"), std::string::npos);
  const std::string json = ToJson(loaded.job);
  EXPECT_NE(json.find("\"train_iters\": 100,"), std::string::npos) << json;
  EXPECT_NE(json.find("\"comm_init\": \"90s\""), std::string::npos);
  EXPECT_NE(json.find("\"lr\": 0.001"), std::string::npos);
  EXPECT_NE(json.find("\"labels\": {\"a\": \"12\", \"b\": "), std::string::npos);
  EXPECT_NE(json.find("\"tensor\": 1"), std::string::npos);
}

TEST(Print, Digests) {
  const v1::JobSpec a = Load().job;
  const v1::JobSpec b = Load({"optimizer.lr=2e-3"}).job;
  EXPECT_EQ(Digest(a).size(), 32u);
  EXPECT_EQ(Digest(a), Digest(Load().job));
  EXPECT_NE(Digest(a), Digest(b));
  EXPECT_EQ(Digest(a, "model"), Digest(b, "model"));
  EXPECT_NE(Digest(a, "optimizer"), Digest(b, "optimizer"));
}

TEST(Explain, Fields) {
  EXPECT_EQ(*Explain("job.parallel.tensor"),
            "parallel.tensor\n"
            "  Ranks that share each matrix.\n\n"
            "  type       integer\n"
            "  default    1\n"
            "  range      at least 1, at most 65536\n"
            "  Megatron   --tensor-model-parallel-size\n"
            "  supported  yes\n");
  EXPECT_NE(Explain("parallel.zero_stage")->find("supported  only 0, 1\n"), std::string::npos);
  EXPECT_NE(Explain("parallel.context")->find("supported  only 1\n"), std::string::npos);
  EXPECT_NE(Explain("training.precision")->find("supported  only fp64, fp32, bf16, fp16\n"),
            std::string::npos);
  EXPECT_NE(Explain("data.cache")->find("relative, below the worker's cache_root"),
            std::string::npos);
  EXPECT_NE(Explain("resilience.timeouts.load")->find("at least 1s"), std::string::npos);
}

TEST(Explain, Sections) {
  EXPECT_NE(Explain("")->find("  optimizer            section"), std::string::npos);
  EXPECT_NE(Explain("training.eval")->find("  every_iters          0 "), std::string::npos);
}

TEST(Explain, UnknownPathsNameTheNearest) {
  EXPECT_EQ(base::Message(Explain("paralel.tensor").status()),
            "no field paralel.tensor; did you mean parallel.tensor?");
  EXPECT_EQ(base::Message(Explain("micro_batch_size").status()),
            "no field micro_batch_size; did you mean training.micro_batch_size?");
  EXPECT_EQ(Explain("zzz").status().code(), absl::StatusCode::kNotFound);
}

// Consistency of job.proto's options: what they tell a user is true.
TEST(Rules, EveryFieldIsDeclaredWhole) {
  for (const FieldAt& at : AllFields(*v1::JobSpec::descriptor(), true)) {
    const v1::FieldRule& rule = RuleOf(*at.field);
    EXPECT_FALSE(rule.help().empty()) << at.path;
    EXPECT_FALSE(rule.required() && rule.has_default_()) << at.path;
    EXPECT_TRUE(at.field->is_repeated() || at.field->has_presence()) << at.path;
    if (IsSection(*at.field)) continue;
    DefaultText(*at.field);  // aborts on a default that its own field refuses
    EXPECT_NE(ReferenceTable().find("| `" + at.path + "` |"), std::string::npos);
    EXPECT_EQ(rule.help().find('|'), std::string::npos) << at.path;
    for (const std::string& value : rule.built()) {
      v1::JobSpec job;
      EXPECT_EQ(FormatFaults(ParseJob("", {at.path + "=" + value}, &job)), "") << at.path;
    }
    if (at.field->enum_type() == nullptr) continue;
    EXPECT_TRUE(at.field->enum_type()->value(0)->name().ends_with("_UNSPECIFIED")) << at.path;
    for (const std::string& text : EnumTexts(*at.field->enum_type())) {
      EXPECT_NE(FindEnumValue(*at.field->enum_type(), text), nullptr);
    }
  }
}

}  // namespace
}  // namespace mt::spec
