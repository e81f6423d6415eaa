// Distribution of layers: even splits, lists, Megatron's layout strings, and refusals.
#include "common/layout/layer_split.h"

#include <gtest/gtest.h>

#include "common/layout/layout_string.h"

namespace mt::layout {
namespace {

std::vector<int64_t> Counts(const LayerSplit& split) {
  std::vector<int64_t> counts;
  for (const ModelChunk& chunk : split.chunks()) counts.push_back(chunk.num_layers);
  return counts;
}

std::string ErrorOf(const LayerSplit::Shape& shape, std::string_view layout) {
  const auto split = LayerSplit::Create(shape, layout);
  EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
  return base::Message(split.status());
}

// Megatron-LM's example: pipeline size 4, 2 virtual stages, 16 layers: rank 0 has layers 1, 2 and
// 9, 10 (counted from 1).
TEST(LayerSplit, InterleavedChunksAreChunkMajor) {
  const auto split = LayerSplit::Create({.layers = 16, .stages = 4, .virtual_stages = 2}, "");
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->OfStage(0),
            (std::vector<ModelChunk>{
                {.stage = 0, .chunk = 0, .first_layer = 0, .num_layers = 2, .has_embedding = true},
                {.stage = 0, .chunk = 1, .first_layer = 8, .num_layers = 2}}));
  EXPECT_EQ(
      split->At(3, 1),
      (ModelChunk{.stage = 3, .chunk = 1, .first_layer = 14, .num_layers = 2, .has_head = true}));
  for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(split->LayersOfStage(stage), 4);
}

TEST(LayerSplit, EveryLayerIsPlacedOnceInOrder) {
  for (const int stages : {1, 2, 3}) {
    for (const int chunks : {1, 2, 4}) {
      const auto split =
          LayerSplit::Create({.layers = 24, .stages = stages, .virtual_stages = chunks}, "");
      ASSERT_TRUE(split.ok());
      int64_t next = 0;
      for (const ModelChunk& chunk : split->chunks()) {
        EXPECT_EQ(chunk.first_layer, next);
        next += chunk.num_layers;
        EXPECT_EQ(chunk.has_embedding, chunk.first_layer == 0);
        EXPECT_EQ(chunk.has_head, next == 24);
      }
      EXPECT_EQ(next, 24);
    }
  }
}

TEST(LayerSplit, ListsMayBeUneven) {
  const auto split =
      LayerSplit::Create({.layers = 10, .stages = 2, .virtual_stages = 2}, "1, 4,4 ,1");
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(Counts(*split), (std::vector<int64_t>{1, 4, 4, 1}));
  EXPECT_EQ(split->At(1, 1).first_layer, 9);
  EXPECT_EQ(split->LayersOfStage(0), 5);
}

TEST(LayerSplit, RefusalsNameWhatWouldFit) {
  EXPECT_NE(ErrorOf({.layers = 10, .stages = 4}, "").find("8 or 12"), std::string::npos);
  EXPECT_NE(ErrorOf({.layers = 10, .stages = 2}, "5,6").find("places 11"), std::string::npos);
  EXPECT_NE(ErrorOf({.layers = 10, .stages = 2}, "10").find("1 positions"), std::string::npos);
  EXPECT_NE(ErrorOf({.layers = 10, .stages = 2}, "5,,5").find("not a number"), std::string::npos);
  ErrorOf({.layers = 0}, "");
  ErrorOf({.layers = 4, .stages = 0}, "");
}

TEST(LayoutString, MegatronsExample) {
  const auto counts = CountsOfLayoutString("E|(t|)*3,t|t||L");
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(*counts, (std::vector<int64_t>{0, 1, 1, 1, 1, 1, 0, 0}));
}

TEST(LayoutString, RepetitionsNest) {
  const auto counts = CountsOfLayoutString("Et*2|((t*3|)*2 t|)*2L");
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(*counts, (std::vector<int64_t>{2, 3, 3, 1, 3, 3, 1, 0}));
  const auto split =
      LayerSplit::Create({.layers = 16, .stages = 4, .virtual_stages = 2}, "Et*2|((t*3|)*2 t|)*2L");
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->At(3, 1).num_layers, 0);
  EXPECT_TRUE(split->At(3, 1).has_head);
}

TEST(LayoutString, WhatIsNoLayoutIsRefusedWithItsPlace) {
  const auto error = [](std::string_view text) {
    const auto counts = CountsOfLayoutString(text);
    EXPECT_EQ(counts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return base::Message(counts.status());
  };
  EXPECT_NE(error("Et|x|tL").find("character 4"), std::string::npos);
  EXPECT_NE(error("E(t|*2L").find("character"), std::string::npos);
  EXPECT_NE(error("Et)L").find("')'"), std::string::npos);
  EXPECT_NE(error("(Et").find("not closed"), std::string::npos);
  EXPECT_NE(error("Et*0L").find("above 0"), std::string::npos);
  EXPECT_NE(error("t|tL").find("begins with E"), std::string::npos);
  EXPECT_NE(error("Et|t").find("ends with L"), std::string::npos);
  EXPECT_NE(error("Et|Et|L").find("E stands first"), std::string::npos);
  EXPECT_NE(error("EL|t|L").find("L stands last"), std::string::npos);
  EXPECT_NE(error("Et|m|L").find("not supported"), std::string::npos);
  EXPECT_NE(error("E((((t)*999999)*999999)*999999)L").find("too many"), std::string::npos);
  error(std::string(100, '(') + "t" + std::string(100, ')'));
  error("");
}

}  // namespace
}  // namespace mt::layout
