// The routes of a GPT's buckets over layouts, ZeRO stages and sequence parallelism, against facts
// written down by hand from worker/parallel/README.md ("ZeRO stage 1", "What is left after the
// replicas' sum") for each kind of parameter. The model itself registers the parameters.
#include "worker/parallel/bucket_route.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/layout/layer_split.h"
#include "worker/model/stage.h"

namespace mt::parallel {
namespace {

using layout::MeshSizes;

// A GPT with a parameter of every kind: four layers, tied tables, learned positions, biases, QK
// norm.
model::GptConfig SmallGpt() {
  return {.layers = 4,
          .hidden = 32,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 8,
          .ffn = 64,
          .vocab = 60,
          .padded_vocab = 64,
          .seq = 16,
          .micro_batch = 1,
          .max_positions = 16,
          .qk_norm = true};
}

// The names by which README.md tells parameters apart, and one of each kind.
const std::map<std::string, std::string> kKinds = {
    {"matrix", "attention.q.weight"},
    {"cut bias", "attention.q.bias"},        // of tensor ranks, each its part
    {"whole bias", "attention.out.bias"},    // all tensor ranks hold it
    {"norm gain", "norm1.weight"},           // likewise
    {"QK gain", "attention.q_norm.weight"},  // likewise
    {"word table", "embedding.word.weight"},
    {"position table", "embedding.position.weight"}};

struct Place {
  MeshSizes mesh;
  int world_rank = 0;
  int zero_stage = 0;
  bool sequence_parallel = false;
};

// One rank's parameters without memory.
class Rank {
 public:
  explicit Rank(const Place& place)
      : axes_(layout::Mesh::Create(place.mesh).value(), place.world_rank, /*tied_tables=*/true) {
    model::GptConfig config = SmallGpt();
    config.shard = {
        .rank = axes_.at().tp, .size = place.mesh.tp, .sequence_parallel = place.sequence_parallel};
    const layout::LayerSplit split =
        layout::LayerSplit::Create({.layers = config.layers, .stages = place.mesh.pp}, "").value();
    const layout::ModelChunk& chunk = split.At(axes_.at().pp, 0);
    model::Stage(config, {.first_layer = chunk.first_layer,
                          .num_layers = chunk.num_layers,
                          .embedding = chunk.has_embedding,
                          .head = chunk.has_head})
        .Register(&registry_);
    layout_ = std::make_unique<params::FlatLayout>(params::FlatLayout::Args{
        .registry = &registry_, .dp_size = place.mesh.dp, .min_bucket_elements = 1024});
    const params::ParamStore store(&registry_, layout_.get(), config.dtype,
                                   {.zero_stage = place.zero_stage, .dp_rank = axes_.at().dp});
    routes_ = RoutesOf(store, axes_);
  }

  // The routes of the kind's buckets as text: all must be alike. "" where this rank has none.
  std::string RouteOf(const std::string& kind) const {
    std::set<std::string> texts;
    for (int32_t i = 0; i < static_cast<int32_t>(registry_.size()); ++i) {
      const params::ParamId id{i};
      if (!registry_[id].name.ends_with(kKinds.at(kind))) continue;
      const BucketRoute& route = routes_.at(static_cast<size_t>(layout_->BucketOf(id)));
      EXPECT_EQ(route.final_after_reduce(), !route.tied && !route.tensor_sum) << kind;
      texts.insert(Text(route));
    }
    EXPECT_LE(texts.size(), 1U) << kind;
    return texts.empty() ? "" : *texts.begin();
  }

 private:
  // The steps of the route in their order.
  static std::string Text(const BucketRoute& route) {
    std::string text = route.reduce == Reduction::kAllReduce       ? "all-reduce "
                       : route.reduce == Reduction::kReduceScatter ? "reduce-scatter "
                                                                   : "";
    if (route.tied) text += "tied ";
    if (route.tensor_sum) text += "tensor ";
    text += route.counted ? "counted" : "uncounted";
    if (route.gather) text += " gather";
    return text;
  }

  const layout::GroupAxes axes_;
  params::Registry registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::vector<BucketRoute> routes_;
};

void ExpectRoutes(const Place& place, const std::map<std::string, std::string>& expected) {
  SCOPED_TRACE(fmt::format("rank {} of tp {} dp {} pp {}, zero {}, sequence parallel {}",
                           place.world_rank, place.mesh.tp, place.mesh.dp, place.mesh.pp,
                           place.zero_stage, place.sequence_parallel));
  const Rank rank(place);
  for (const auto& [kind, route] : expected) EXPECT_EQ(rank.RouteOf(kind), route) << kind;
}

// What all kinds have in common, and those that differ.
std::map<std::string, std::string> AllBut(const std::string& common,
                                          std::map<std::string, std::string> others) {
  for (const auto& [kind, name] : kKinds) others.emplace(kind, common);
  return others;
}

TEST(BucketRoutes, OneRankSumsNothing) {
  for (const int zero_stage : {0, 1}) {
    for (const bool sequence_parallel : {false, true}) {
      ExpectRoutes({.zero_stage = zero_stage, .sequence_parallel = sequence_parallel},
                   AllBut("counted", {}));
    }
  }
}

TEST(BucketRoutes, ReplicasSumAllAtStage0AndTheirSlicesAtStage1) {
  for (const int rank : {0, 1, 2}) {
    ExpectRoutes({.mesh = {.dp = 3}, .world_rank = rank, .zero_stage = 0},
                 AllBut("all-reduce counted", {}));
    ExpectRoutes({.mesh = {.dp = 3}, .world_rank = rank, .zero_stage = 1},
                 AllBut("reduce-scatter counted gather", {}));
  }
}

TEST(BucketRoutes, TensorRanksSumPartialGradientsAndTheFirstCountsWhatAllHold) {
  // Without sequence parallelism of QK gains its heads only.
  ExpectRoutes({.mesh = {.tp = 2}, .world_rank = 0},
               AllBut("counted", {{"QK gain", "tensor counted"}}));
  ExpectRoutes({.mesh = {.tp = 2}, .world_rank = 1}, {{"matrix", "counted"},
                                                      {"cut bias", "counted"},
                                                      {"word table", "counted"},
                                                      {"whole bias", "uncounted"},
                                                      {"norm gain", "uncounted"},
                                                      {"QK gain", "tensor uncounted"},
                                                      {"position table", "uncounted"}});
  // With it a rank sees its rows only; the embedding gathers all rows, so its table is whole.
  for (const int zero_stage : {0, 1}) {
    ExpectRoutes({.mesh = {.tp = 2}, .zero_stage = zero_stage, .sequence_parallel = true},
                 AllBut("counted", {{"norm gain", "tensor counted"},
                                    {"whole bias", "tensor counted"},
                                    {"QK gain", "tensor counted"}}));
  }
  ExpectRoutes({.mesh = {.tp = 4}, .world_rank = 3, .sequence_parallel = true},
               AllBut("counted", {{"norm gain", "tensor uncounted"},
                                  {"whole bias", "tensor uncounted"},
                                  {"QK gain", "tensor uncounted"},
                                  {"position table", "uncounted"}}));
}

TEST(BucketRoutes, BothEndsExchangeTheirTiedTableAndTheFirstCountsIt) {
  ExpectRoutes({.mesh = {.pp = 4}, .world_rank = 0},
               AllBut("counted", {{"word table", "tied counted"}}));
  for (const int middle : {1, 2}) {
    ExpectRoutes({.mesh = {.pp = 4}, .world_rank = middle},
                 AllBut("counted", {{"word table", ""}, {"position table", ""}}));
  }
  ExpectRoutes({.mesh = {.pp = 4}, .world_rank = 3},
               AllBut("counted", {{"word table", "tied uncounted"}, {"position table", ""}}));
}

// Rank = tp + 2 (dp + 2 pp).
TEST(BucketRoutes, AllAxesAtOnce) {
  const MeshSizes cube{.tp = 2, .dp = 2, .pp = 2};
  ExpectRoutes({.mesh = cube, .world_rank = 2, .zero_stage = 1, .sequence_parallel = true},
               {{"matrix", "reduce-scatter counted gather"},
                {"cut bias", "reduce-scatter counted gather"},
                {"whole bias", "reduce-scatter tensor counted gather"},
                {"norm gain", "reduce-scatter tensor counted gather"},
                {"QK gain", "reduce-scatter tensor counted gather"},
                {"word table", "reduce-scatter tied counted gather"},
                {"position table", "reduce-scatter counted gather"}});
  ExpectRoutes({.mesh = cube, .world_rank = 5, .zero_stage = 0, .sequence_parallel = false},
               {{"matrix", "all-reduce counted"},
                {"cut bias", "all-reduce counted"},
                {"whole bias", "all-reduce uncounted"},
                {"norm gain", "all-reduce uncounted"},
                {"QK gain", "all-reduce tensor uncounted"},
                {"word table", "all-reduce tied uncounted"},
                {"position table", ""}});
}

TEST(BucketRoutesDeathTest, StoreAndAxesAgree) {
  params::Registry registry;
  registry.Add({.name = "matrix", .shape = {4, 4}, .stored = {4, 4}});
  const params::FlatLayout layout({.registry = &registry, .dp_size = 2, .min_bucket_elements = 1});
  const params::ParamStore second(&registry, &layout, kernels::DType::kF32, {.dp_rank = 1});
  const auto routes_of = [&](const MeshSizes& mesh, int world_rank) {
    return RoutesOf(second, {layout::Mesh::Create(mesh).value(), world_rank, true});
  };
  EXPECT_EQ(routes_of({.dp = 2}, 1).size(), 1U);
  EXPECT_DEATH(routes_of({.dp = 2}, 0), "dp_rank");
  EXPECT_DEATH(routes_of({.dp = 3}, 1), "dp_size");
  EXPECT_DEATH(routes_of({.dp = 2, .pp = 2}, 1), "word tables at an end");
}

}  // namespace
}  // namespace mt::parallel
