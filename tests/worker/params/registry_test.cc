// The registry's rules: Megatron's decay rule by name and shape, look-up by name, bugs that abort.
#include "worker/params/registry.h"

#include <gtest/gtest.h>

namespace mt::params {
namespace {

ParamSpec Matrix(const std::string& name, kernels::Shape shape) {
  return {.name = name, .shape = shape, .stored = shape, .region = Region::kMatrix};
}

TEST(RegistryTest, MegatronDecayRule) {
  // Decayed: matrices, the word and position tables included. Not: biases, one-dimensional gains.
  EXPECT_TRUE(DecaysByMegatronRule("embedding.word.weight", {50304, 768}));
  EXPECT_TRUE(DecaysByMegatronRule("embedding.position.weight", {1024, 768}));
  EXPECT_TRUE(DecaysByMegatronRule("layers.0.attention.q.weight", {768, 768}));
  EXPECT_TRUE(DecaysByMegatronRule("layers.11.ffn.down.weight", {768, 3072}));
  EXPECT_FALSE(DecaysByMegatronRule("layers.0.norm1.weight", {768}));
  EXPECT_FALSE(DecaysByMegatronRule("layers.0.norm1.bias", {768}));
  EXPECT_FALSE(DecaysByMegatronRule("layers.0.ffn.up.bias", {3072}));
  EXPECT_FALSE(DecaysByMegatronRule("final_norm.weight", {768}));
  // The name decides even where a bias has two dimensions.
  EXPECT_FALSE(DecaysByMegatronRule("layers.0.experts.bias", {8, 768}));
}

TEST(RegistryTest, FindsByNameAndCountsLogicalElements) {
  Registry registry;
  const ParamId a = registry.Add(Matrix("a", {3, 4}));
  const ParamId table = registry.Add(
      {.name = "table", .shape = {257, 4}, .stored = {384, 4}, .region = Region::kWordEmbedding});
  EXPECT_EQ(registry.Find("a"), a);
  EXPECT_EQ(registry.Find("table"), table);
  EXPECT_EQ(registry.Find("b"), std::nullopt);
  EXPECT_EQ(registry[table].stored[0], 384);
  EXPECT_EQ(registry.NumElements(), 3 * 4 + 257 * 4);
}

TEST(Registry, APartKnowsWhatOfItIsLogical) {
  ParamSpec rows = Matrix("a", {10, 4});
  rows.stored = {4, 4};
  EXPECT_EQ(rows.Held(), (kernels::Shape{4, 4}));
  rows.begin = {8, 0};
  EXPECT_EQ(rows.Held(), (kernels::Shape{2, 4}));
  rows.begin = {12, 0};
  EXPECT_EQ(rows.Held(), (kernels::Shape{0, 4}));
  ParamSpec columns = Matrix("b", {10, 4});
  columns.stored = {10, 2};
  columns.begin = {0, 2};
  EXPECT_EQ(columns.Held(), (kernels::Shape{10, 2}));
}

// Heads of 5 channels stored as 8.
TEST(Registry, PaddedUnitsLieInRuns) {
  ParamSpec rows = Matrix("a", {20, 4});
  rows.stored = {16, 4};
  rows.begin = {10, 0};
  rows.units = {.dim = 0, .size = 5, .stored = 8};
  EXPECT_EQ(rows.Held(), (kernels::Shape{10, 4}));
  EXPECT_EQ(rows.Places(), (base::Runs{.length = 20, .stride = 32}));
  ParamSpec columns = Matrix("b", {3, 20});
  columns.stored = {3, 16};
  columns.begin = {0, 10};
  columns.by_columns = true;
  columns.units = {.dim = 1, .size = 5, .stored = 8};
  EXPECT_EQ(columns.Held(), (kernels::Shape{3, 10}));
  EXPECT_EQ(columns.Places(), (base::Runs{.length = 5, .stride = 8}));
  ParamSpec vector = Matrix("c", {20});
  vector.stored = {32};
  vector.units = {.dim = 0, .size = 5, .stored = 8};
  EXPECT_EQ(vector.Held(), (kernels::Shape{20}));
  EXPECT_EQ(vector.Places(), (base::Runs{.length = 5, .stride = 8}));
  Registry registry;
  for (const ParamSpec& spec : {rows, columns, vector}) registry.Add(spec);
  EXPECT_EQ(registry.NumElements(), 80 + 60 + 20);
  EXPECT_TRUE(Matrix("d", {20, 4}).Places().contiguous());
}

TEST(RegistryDeathTest, RefusesUnitsThatDoNotFit) {
  Registry registry;
  ParamSpec spec = Matrix("a", {20, 4});
  spec.stored = {15, 4};
  spec.units = {.dim = 0, .size = 5, .stored = 8};
  EXPECT_DEATH(registry.Add(spec), "a") << "no whole units";
  spec.stored = {32, 4};
  spec.begin = {5, 0};
  EXPECT_DEATH(registry.Add(spec), "a") << "beyond the end";
  spec.begin = {0, 0};
  spec.init = InitKind::kOne;
  EXPECT_DEATH(registry.Add(spec), "padding is zero");
}

TEST(RegistryDeathTest, RefusesWhatOnlyABugCanAsk) {
  Registry registry;
  registry.Add(Matrix("a", {3, 4}));
  EXPECT_DEATH(registry.Add(Matrix("a", {3, 4})), "same hash");
  ParamSpec beyond = Matrix("b", {3, 4});
  beyond.stored = {3, 2};
  beyond.begin = {0, 3};
  beyond.by_columns = true;
  EXPECT_DEATH(registry.Add(beyond), "b");
  beyond.begin = {0, 0};
  beyond.by_columns = false;
  EXPECT_DEATH(registry.Add(beyond), "b is not sharded by columns");
  ParamSpec other_columns = Matrix("c", {3, 5});
  other_columns.joined = true;
  EXPECT_DEATH(registry.Add(other_columns), "cannot be joined");
}

}  // namespace
}  // namespace mt::params
