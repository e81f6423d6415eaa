// Every variant of the model under tensor and pipeline parallelism together, against a single rank
// in double precision. That a variant matches its paper is tested in tests/worker/model; here the
// sharded model must equal the whole one.
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"

namespace mt::parity {
namespace {

struct Variant {
  const char* name;
  std::vector<std::string> fields;  // over the GPT-2-like model
  // One key head cannot be cut: its layout has replicas instead of tensor ranks.
  bool one_key_head = false;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

const Variant kVariants[] = {
    {"rmsnorm", {"model.norm=rmsnorm"}},
    {"layernorm_one_plus", {"model.norm_one_plus=true"}},
    {"rmsnorm_one_plus", {"model.norm=rmsnorm", "model.norm_one_plus=true"}},
    {"rope", {"model.position=rope"}},
    {"rope_half", {"model.position=rope", "model.rope.percent=0.5", "model.rope.base=500"}},
    {"rope_linear",
     {"model.position=rope", "model.rope.scaling.type=linear", "model.rope.scaling.factor=4"}},
    {"rope_llama3",
     {"model.position=rope", "model.rope.scaling.type=llama3", "model.rope.scaling.factor=8",
      "model.rope.scaling.original_positions=8"}},
    {"alibi", {"model.position=alibi"}},
    {"no_positions", {"model.position=none"}},
    {"swiglu", {"model.activation=swiglu", "model.ffn_size=64"}},
    {"geglu", {"model.activation=geglu", "model.ffn_size=64"}},
    {"relu2", {"model.activation=relu2"}},
    {"no_bias", {"model.bias=false"}},
    {"qkv_bias_only", {"model.bias=false", "model.qkv_bias=true"}},
    {"grouped_queries", {"model.kv_heads=2"}},
    {"one_key_head", {"model.kv_heads=1"}, true},
    {"qk_norm", {"model.qk_norm=true"}},
    {"window", {"model.window=5"}},
    {"parallel_residual", {"model.parallel_residual=true"}},
    {"untied", {"model.tie_embeddings=false"}},
    {"head_size_12", {"model.head_dim=12"}},
};

class VariantTest : public testing::TestWithParam<Variant> {};

TEST_P(VariantTest, IsTheSameInParts) {
  const Variant& variant = GetParam();
  const Layout layout = variant.one_key_head ? Layout{.pp = 2, .dp = 2, .zero_stage = 1}
                                             : Layout{.tp = 2, .pp = 2, .sequence_parallel = true};
  Runner runner;
  const Curve alone = runner.RunAlone(layout, "fp64", variant.fields);
  EXPECT_LT(alone.steps.back().loss, alone.steps.front().loss - 0.1) << "it learns";
  EXPECT_FALSE(alone == runner.RunAlone(layout, "fp64")) << "the field does something";
  ExpectClose(runner.Run(layout, "fp64", variant.fields), alone, BoundsOf("fp64"));
}

INSTANTIATE_TEST_SUITE_P(Parity, VariantTest, testing::ValuesIn(kVariants),
                         [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace mt::parity
