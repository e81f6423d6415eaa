// Parameters that the model registers for a job: of every preset against its name and published
// counts, of every variant against common/spec's formula. No memory is allocated.
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/presets.h"
#include "common/spec/validate.h"
#include "kernels/cpu/cpu_backend.h"
#include "megatrain/v1/job.pb.h"
#include "worker/model/gpt_config.h"
#include "worker/model/gpt_model.h"
#include "worker/params/registry.h"

namespace mt::model {
namespace {

megatrain::v1::JobSpec JobOf(const std::string& model) {
  const std::string text = fmt::format(
      "name: a\nmodel: {{{}}}\ndata: {{mock: true}}\ntraining: {{micro_batch_size: 1, train_iters: "
      "10}}\n"
      "optimizer: {{lr: 1e-3}}\nplacement: {{device: cpu}}\n",
      model);
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

// Of a network on one rank.
int64_t Registered(const megatrain::v1::JobSpec& job) {
  auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1});
  CHECK(backend.ok()) << backend.status().ToString();
  const auto stream = (*backend)->device().CreateStream(kernels::StreamPriority::kLow);
  GptModel model(ConfigFromJob(job), backend->get(), stream.get());
  params::Registry registry;
  model.RegisterParams(&registry);
  return registry.NumElements();
}

// "gpt3-1.3b" -> 1.3e9.
double CountInName(const std::string& name) {
  char* end = nullptr;
  const double number = std::strtod(name.c_str() + name.rfind('-') + 1, &end);
  const std::map<std::string, double> units = {{"m", 1e6}, {"b", 1e9}, {"t", 1e12}};
  return number * units.at(end);
}

TEST(ParameterCount, OfEveryPresetIsThatOfItsName) {
  for (const spec::Preset& preset : spec::Presets()) {
    const std::string name(preset.name);
    SCOPED_TRACE(name);
    if (name == "tiny") continue;  // names no count
    const auto job = JobOf("preset: " + name);
    const int64_t count = Registered(job);
    EXPECT_EQ(count, spec::ParameterCount(job.model()));
    EXPECT_NEAR(static_cast<double>(count) / CountInName(name), 1, 0.04);  // names are rounded
  }
}

// Of the checkpoints that their authors published.
TEST(ParameterCount, OfPublishedModels) {
  const std::map<std::string, int64_t> published = {
      {"gpt2-124m", 124439808},    {"gpt2-355m", 354823168},       {"gpt2-774m", 774030080},
      {"gpt2-1558m", 1557611200},  {"tinyllama-1.1b", 1100048384}, {"llama2-7b", 6738415616},
      {"llama2-13b", 13015864320}, {"llama2-70b", 68976648192},    {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496},
  };
  for (const auto& [name, count] : published) {
    EXPECT_EQ(Registered(JobOf("preset: " + name)), count) << name;
  }
}

TEST(ParameterCount, OfEveryVariantFollowsTheFormula) {
  for (const char* variant :
       {"norm: rmsnorm", "position: rope", "position: alibi", "position: none",
        "activation: swiglu", "activation: geglu", "activation: relu2", "kv_heads: 2",
        "kv_heads: 1", "qk_norm: true", "qk_norm: true, norm: rmsnorm", "window: 5",
        "parallel_residual: true", "tie_embeddings: false", "bias: false",
        "bias: false, qkv_bias: true", "qkv_bias: false", "head_dim: 12", "norm_one_plus: true"}) {
    const auto job = JobOf(std::string("layers: 3, hidden_size: 48, heads: 6, vocab_size: 300, "
                                       "seq_length: 32, ffn_size: 100, ") +
                           variant);
    EXPECT_EQ(Registered(job), spec::ParameterCount(job.model())) << variant;
  }
}

}  // namespace
}  // namespace mt::model
