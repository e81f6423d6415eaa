// The flat order and its buckets against hand-computed offsets.
#include "worker/params/flat_layout.h"

#include <gtest/gtest.h>

#include "common/base/math.h"

namespace mt::params {
namespace {

class FlatLayoutTest : public ::testing::Test {
 protected:
  ParamId Add(const std::string& name, kernels::Shape shape, Region region, int layer,
              bool joined = false) {
    return registry_.Add({.name = name,
                          .shape = shape,
                          .stored = shape,
                          .region = region,
                          .decay = DecaysByMegatronRule(name, shape),
                          .layer = layer,
                          .joined = joined});
  }

  // Two layers of a GPT with h = 8 and odd sizes, in the order a model declares them.
  void AddGpt() {
    word_ = Add("embedding.word.weight", {128, 8}, Region::kWordEmbedding, -1);
    position_ = Add("embedding.position.weight", {16, 8}, Region::kPositionTable, -1);
    for (int i = 0; i < 2; ++i) {
      const std::string layer = "layers." + std::to_string(i) + ".";
      norm_[i] = Add(layer + "norm1.weight", {8}, Region::kReplicatedVector, i);
      q_[i] = Add(layer + "attention.q.weight", {9, 8}, Region::kMatrix, i);
      k_[i] = Add(layer + "attention.k.weight", {9, 8}, Region::kMatrix, i, true);
      v_[i] = Add(layer + "attention.v.weight", {9, 8}, Region::kMatrix, i, true);
      q_bias_[i] = Add(layer + "attention.q.bias", {9}, Region::kShardedVector, i);
      k_bias_[i] = Add(layer + "attention.k.bias", {9}, Region::kShardedVector, i, true);
      out_[i] = Add(layer + "attention.out.weight", {8, 9}, Region::kMatrix, i);
    }
  }

  Registry registry_;
  ParamId word_{}, position_{};
  ParamId norm_[2], q_[2], k_[2], v_[2], q_bias_[2], k_bias_[2], out_[2];
};

TEST_F(FlatLayoutTest, OrderOffsetsAndPadding) {
  AddGpt();
  const FlatLayout layout({.registry = &registry_, .dp_size = 2, .min_bucket_elements = 1 << 20});
  ASSERT_EQ(layout.num_buckets(), 5);
  // Matrices, last layer first; q, k, v without a gap (72 elements each), the rest at 128.
  EXPECT_EQ(layout.OffsetOf(q_[1]), 0);
  EXPECT_EQ(layout.OffsetOf(k_[1]), 72);
  EXPECT_EQ(layout.OffsetOf(v_[1]), 144);
  EXPECT_EQ(layout.OffsetOf(out_[1]), 256);
  EXPECT_EQ(layout.OffsetOf(q_[0]), 384);
  EXPECT_EQ(layout.OffsetOf(k_[0]), 456);
  EXPECT_EQ(layout.OffsetOf(v_[0]), 528);
  EXPECT_EQ(layout.OffsetOf(out_[0]), 640);
  // Every bucket is padded to 2 x 1024 elements.
  EXPECT_EQ(layout.OffsetOf(word_), 2048);
  EXPECT_EQ(layout.OffsetOf(q_bias_[1]), 4096);
  EXPECT_EQ(layout.OffsetOf(k_bias_[1]), 4105);
  EXPECT_EQ(layout.OffsetOf(q_bias_[0]), 4224);
  EXPECT_EQ(layout.OffsetOf(norm_[1]), 6144);
  EXPECT_EQ(layout.OffsetOf(norm_[0]), 6272);
  EXPECT_EQ(layout.OffsetOf(position_), 8192);
  EXPECT_EQ(layout.num_elements(), 10240);

  const Region regions[] = {Region::kMatrix, Region::kWordEmbedding, Region::kShardedVector,
                            Region::kReplicatedVector, Region::kPositionTable};
  const bool decay[] = {true, true, false, false, true};
  for (int b = 0; b < 5; ++b) {
    EXPECT_EQ(layout.bucket(b).region, regions[b]) << b;
    EXPECT_EQ(layout.bucket(b).decay, decay[b]) << b;
    EXPECT_EQ(layout.bucket(b).begin, 2048 * b);
    EXPECT_EQ(layout.bucket(b).count, 2048);
  }
  EXPECT_EQ(layout.BucketOf(out_[0]), 0);
  EXPECT_EQ(layout.BucketOf(position_), 4);
}

TEST_F(FlatLayoutTest, CutsAtMatrixBordersButNeverInsideAJoinedRun) {
  AddGpt();
  // q alone (72) is above the limit, yet k and v must stay with it.
  const FlatLayout layout({.registry = &registry_, .dp_size = 1, .min_bucket_elements = 64});
  ASSERT_EQ(layout.num_buckets(), 8);
  EXPECT_EQ(layout.bucket(0).params, (std::vector<ParamId>{q_[1], k_[1], v_[1]}));
  EXPECT_EQ(layout.bucket(1).params, (std::vector<ParamId>{out_[1]}));
  EXPECT_EQ(layout.bucket(2).params, (std::vector<ParamId>{q_[0], k_[0], v_[0]}));
  EXPECT_EQ(layout.bucket(3).params, (std::vector<ParamId>{out_[0]}));
  EXPECT_EQ(layout.OffsetOf(v_[0]) - layout.OffsetOf(q_[0]), 144);
}

TEST_F(FlatLayoutTest, BucketsTileTheBufferAndSlicesTileTheBuckets) {
  AddGpt();
  for (const int64_t dp_size : {1, 2, 3, 4, 8}) {
    const FlatLayout layout(
        {.registry = &registry_, .dp_size = dp_size, .min_bucket_elements = 200});
    int64_t next = 0;
    for (int b = 0; b < layout.num_buckets(); ++b) {
      const Bucket& bucket = layout.bucket(b);
      EXPECT_EQ(bucket.begin, next);
      for (int64_t r = 0; r < dp_size; ++r) {
        const Slice slice = layout.OwnSlice(b, r);
        EXPECT_EQ(slice.begin, next);
        EXPECT_EQ(slice.count % kBucketUnitElements, 0);
        next += slice.count;
      }
      EXPECT_EQ(bucket.begin + bucket.count, next);
      for (const ParamId id : bucket.params) {
        EXPECT_GE(layout.OffsetOf(id), bucket.begin);
        EXPECT_LE(layout.OffsetOf(id) + registry_[id].stored.NumElements(),
                  bucket.begin + bucket.count);
      }
    }
    EXPECT_EQ(layout.num_elements(), next);
  }
}

TEST_F(FlatLayoutTest, MixedDecayIsNeverInOneBucket) {
  registry_.Add({.name = "gain",
                 .shape = {8},
                 .stored = {8},
                 .region = Region::kReplicatedVector,
                 .decay = false});
  const ParamId decayed = registry_.Add({.name = "decayed_gain",
                                         .shape = {8},
                                         .stored = {8},
                                         .region = Region::kReplicatedVector,
                                         .decay = true});
  const FlatLayout layout({.registry = &registry_, .dp_size = 1, .min_bucket_elements = 1});
  ASSERT_EQ(layout.num_buckets(), 2);
  EXPECT_FALSE(layout.bucket(0).decay);
  EXPECT_TRUE(layout.bucket(1).decay);
  EXPECT_EQ(layout.BucketOf(decayed), 1);
}

TEST_F(FlatLayoutTest, ChunksFollowEachOtherAndForwardReadsEachFromItsEnd) {
  const auto add = [&](const std::string& name, int chunk, int layer) {
    return registry_.Add({.name = name,
                          .shape = {8, 8},
                          .stored = {8, 8},
                          .region = Region::kMatrix,
                          .layer = layer,
                          .chunk = chunk});
  };
  const ParamId late = add("layers.4.w", 1, 4);  // chunks are declared in any order
  const ParamId early = add("layers.0.w", 0, 0);
  const ParamId second = add("layers.1.w", 0, 1);
  const FlatLayout layout({.registry = &registry_, .dp_size = 1, .min_bucket_elements = 1});
  ASSERT_EQ(layout.num_buckets(), 3);
  EXPECT_EQ(layout.BucketOf(second), 0);
  EXPECT_EQ(layout.BucketOf(early), 1);
  EXPECT_EQ(layout.BucketOf(late), 2);
  EXPECT_EQ(layout.bucket(1).chunk, 0);
  EXPECT_EQ(layout.bucket(2).chunk, 1);
  EXPECT_EQ(layout.ForwardOrder(), (std::vector<int>{1, 0, 2}));
  // A large limit joins the layers of a chunk, never two chunks.
  const FlatLayout large({.registry = &registry_, .dp_size = 1, .min_bucket_elements = 1 << 20});
  ASSERT_EQ(large.num_buckets(), 2);
  EXPECT_EQ(large.bucket(0).params, (std::vector<ParamId>{second, early}));
}

TEST_F(FlatLayoutTest, PartialGradientsAndCopiesHaveBucketsOfTheirOwn) {
  const auto add = [&](const std::string& name, Region region, bool partial, bool copy) {
    return registry_.Add({.name = name,
                          .shape = {64},
                          .stored = {64},
                          .region = region,
                          .partial = partial,
                          .copy = copy});
  };
  const ParamId gain = add("gain", Region::kReplicatedVector, true, false);
  const ParamId bias = add("bias", Region::kReplicatedVector, false, false);
  const ParamId shift = add("shift", Region::kReplicatedVector, true, false);
  const ParamId copied = add("table", Region::kWordEmbedding, false, true);
  const ParamId output = add("output", Region::kWordEmbedding, false, false);
  const FlatLayout layout({.registry = &registry_, .dp_size = 1, .min_bucket_elements = 1 << 20});
  ASSERT_EQ(layout.num_buckets(), 4);
  EXPECT_EQ(layout.bucket(layout.BucketOf(gain)).params, (std::vector<ParamId>{gain, shift}));
  EXPECT_TRUE(layout.bucket(layout.BucketOf(gain)).partial);
  EXPECT_FALSE(layout.bucket(layout.BucketOf(bias)).partial);
  EXPECT_TRUE(layout.bucket(layout.BucketOf(copied)).copy);
  EXPECT_FALSE(layout.bucket(layout.BucketOf(output)).copy);
}

TEST_F(FlatLayoutTest, BothEndsOfATiedPairCutTheTableAlike) {
  // The first stage has other matrices than the last; the table's bucket has one size.
  Registry first;
  Registry last;
  for (Registry* registry : {&first, &last}) {
    registry->Add({.name = "embedding.word.weight",
                   .shape = {257, 24},
                   .stored = {384, 24},
                   .region = Region::kWordEmbedding,
                   .decay = true,
                   .copy = registry == &last});
  }
  first.Add({.name = "layers.0.w", .shape = {100, 24}, .stored = {100, 24}});
  const FlatLayout a({.registry = &first, .dp_size = 3, .min_bucket_elements = 1});
  const FlatLayout b({.registry = &last, .dp_size = 3, .min_bucket_elements = 1});
  const Bucket& left = a.bucket(a.BucketOf(ParamId{0}));
  const Bucket& right = b.bucket(b.BucketOf(ParamId{0}));
  EXPECT_EQ(left.count, right.count);
  EXPECT_EQ(a.OffsetOf(ParamId{0}) - left.begin, b.OffsetOf(ParamId{0}) - right.begin);
}

}  // namespace
}  // namespace mt::params
