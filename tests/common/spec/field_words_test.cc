// The fields of a job file as words: what is built, what lives, what a field may be.
#include "common/spec/field_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/presets.h"

namespace mt::spec {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST(FieldWordsTest, DeclarationsAreToldAsWords) {
  const FieldWords* lr = FindFieldWords("optimizer.lr");
  ASSERT_NE(lr, nullptr);
  EXPECT_EQ(lr->help, "Highest learning rate.");
  EXPECT_EQ(lr->default_text, "");
  EXPECT_TRUE(lr->built);
  EXPECT_FALSE(lr->live);
  EXPECT_THAT(lr->values, testing::IsEmpty());
  EXPECT_TRUE(FindFieldWords("checkpoint.every_iters")->live);
  EXPECT_TRUE(FindFieldWords("training.eval")->section);
  EXPECT_EQ(FindFieldWords("training.precision")->default_text, "auto");
  EXPECT_EQ(FindFieldWords("optimizer.learning_rate"), nullptr);
}

TEST(FieldWordsTest, ValuesAreThoseThatAreBuilt) {
  EXPECT_THAT(FindFieldWords("model.norm")->values, ElementsAre("layernorm", "rmsnorm"));
  EXPECT_THAT(FindFieldWords("data.tokenizer.type")->values,
              ElementsAre("byte", "null", "gpt2_bpe", "hf", "sentencepiece"));
  EXPECT_THAT(FindFieldWords("model.qkv_bias")->values, ElementsAre("true", "false", "auto"));
  EXPECT_THAT(FindFieldWords("model.bias")->values, ElementsAre("true", "false"));
  EXPECT_THAT(FindFieldWords("parallel.zero_stage")->values, ElementsAre("0", "1", "auto"));
  EXPECT_THAT(FindFieldWords("training.loss_scale.mode")->values.size(), 3U);  // auto once
  EXPECT_THAT(FindFieldWords("model.preset")->values, Contains("llama2-7b"));
  EXPECT_EQ(FindFieldWords("model.preset")->values.size(), Presets().size());
}

TEST(FieldWordsTest, WhatIsNotBuiltSaysSo) {
  EXPECT_FALSE(FindFieldWords("model.moe.experts")->built);
  EXPECT_TRUE(FindFieldWords("telemetry.tensorboard")->built);
  EXPECT_FALSE(FindFieldWords("parallel.context")->built);
  EXPECT_TRUE(FindFieldWords("parallel.tensor")->built);
}

}  // namespace
}  // namespace mt::spec
