// Runs whose down projections are large enough to be stored in parts of their columns, in fp64:
// each layout saves the parts that lie on it, and goes on from every other layout's as that one
// would have; under sanitizers from one other's, or its own.
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/inspect/diff.h"
#include "worker/model/gpt_config.h"
#include "worker/model/stage.h"

namespace mt::train {
namespace {

using Overrides = std::vector<std::string>;

const std::vector<Overrides>& ColumnLayouts() {
  static const std::vector<Overrides> layouts = {
      {},
      {"parallel.tensor=2", "parallel.data=2", "parallel.zero_stage=1"},
      {"parallel.pipeline=2"},
      {"parallel.tensor=4"}};
  return layouts;
}

// [64, 4096] in fp64: eight parts of 256 KiB. That of the attention, [64, 64], is none.
constexpr int64_t kHidden = 64, kFfn = 4096, kPart = kFfn / 8;
constexpr int64_t kColumnsSavedStep = 2, kColumnsLastStep = 4;

class ColumnPartsTest : public TrainTest {
 protected:
  std::vector<StepRecord> RunAs(const Overrides& layout, int64_t last, const std::string& directory,
                                const std::string& load) {
    Overrides overrides = {"model.hidden_size=" + std::to_string(kHidden),
                           "model.ffn_size=" + std::to_string(kFfn),
                           "model.heads=4",
                           "training.exit_at_iter=" + std::to_string(last),
                           "checkpoint.keep_last=9",
                           "checkpoint.directory=" + directory};
    if (!load.empty()) overrides.push_back("checkpoint.load=" + load);
    if (directory != "none")
      overrides.push_back("checkpoint.every_iters=" + std::to_string(kColumnsSavedStep));
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    // One job: where it has reached its exit already, it saves what it has loaded.
    adjust_ = [](int, TrainArgs* args) {
      args->job_uid = "job";
      args->epoch = 1;
    };
    const std::vector<RankOutcome> ranks = Run(overrides);
    ExpectClean(ranks, last);
    return ranks[0].seen.steps;
  }

  std::string PathOf(const std::string& directory) const {
    return dir_.path() + "/checkpoints/" + directory;
  }
  checkpoint::CheckpointPlace Saved(const std::string& directory) const {
    const checkpoint::CheckpointId id{kColumnsSavedStep, 1};
    return {.directory = PathOf(directory),
            .id = id,
            .folder = base::JoinPath(PathOf(directory), checkpoint::FolderName(id))};
  }

  // Stored boxes of a tensor, "row+rows column+columns", and how often each occurs.
  std::map<std::string, int> BoxesOf(const std::string& directory, const std::string& key) const {
    const auto manifest =
        checkpoint::ReadWholeManifest(PathOf(directory), {kColumnsSavedStep, 1}).value();
    std::map<std::string, int> boxes;
    for (const auto& slice : manifest.tensors.at(key).slices) {
      ++boxes[fmt::format("{}+{} {}+{}", slice.offset[0], slice.shape[0], slice.offset[1],
                          slice.shape[1])];
    }
    return boxes;
  }
};

// What a rank of two holds some columns of is declared so for one rank, too, and nothing else is.
TEST(ColumnShardsTest, AreDeclaredForAnyNumberOfTensorRanks) {
  for (const Overrides& model :
       {Overrides{"model.heads=4"},
        Overrides{"model.heads=4", "model.kv_heads=2", "model.activation=swiglu",
                  "model.ffn_size=32", "model.position=rope", "model.tie_embeddings=false",
                  "model.qk_norm=true"}}) {
    model::GptConfig config = model::ConfigFromJob(TinyJob(model));
    params::Registry one, two;
    model::Stage(config, {.num_layers = config.layers}).Register(&one);
    config.shard = {.rank = 1, .size = 2};
    model::Stage(config, {.num_layers = config.layers}).Register(&two);
    int64_t by_columns = 0;
    for (const params::ParamSpec& spec : two.params()) {
      const bool cut = spec.shape.rank() == 2 && spec.Held()[1] < spec.shape[1];
      EXPECT_EQ(spec.by_columns, cut) << spec.name;
      EXPECT_EQ(one[*one.Find(spec.name)].by_columns, cut) << spec.name;
      by_columns += cut ? 1 : 0;
    }
    EXPECT_EQ(by_columns, 2 * config.layers);
  }
}

TEST_F(ColumnPartsTest, EveryLayoutGoesOnFromTheParts) {
  std::map<std::string, int> parts;
  for (int64_t i = 0; i < 8; ++i) parts[fmt::format("0+{} {}+{}", kHidden, i * kPart, kPart)] = 1;
  const auto name = [](size_t i) { return "layout" + std::to_string(i); };
  const std::vector<Overrides>& layouts = ColumnLayouts();
  std::vector<std::vector<StepRecord>> straight;
  for (size_t i = 0; i < layouts.size(); ++i) {
    straight.push_back(RunAs(layouts[i], kColumnsLastStep, name(i), ""));
    ExpectSameCurve(straight[i], straight[0], 1e-12, 1e-12);
    for (const char* kind : {"weights", "exp_avg", "exp_avg_sq"}) {
      const std::string down = fmt::format("{}/layers.1.ffn.down.weight", kind);
      EXPECT_EQ(BoxesOf(name(i), down), parts) << kind << " of layout " << i;
      const std::string out = fmt::format("{}/layers.1.attention.out.weight", kind);
      EXPECT_LE(BoxesOf(name(i), out).size(), 4U) << "small: one of each tensor rank";
    }
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string load = name(i) + "/" + checkpoint::FolderName({kColumnsSavedStep, 1});
    for (size_t j = 0; j < layouts.size(); ++j) {
      if (kSanitized && (i + j) % layouts.size() != 0) continue;
      SCOPED_TRACE(fmt::format("layout {} into layout {}", i, j));
      const std::vector<StepRecord> got = RunAs(layouts[j], kColumnsLastStep, "none", load);
      const std::vector<StepRecord> want(straight[i].begin() + kColumnsSavedStep,
                                         straight[i].end());
      ASSERT_EQ(got.size(), want.size());
      if (i == j) {
        ExpectEqualCurve(got, want);
      } else {
        ExpectSameCurve(got, want, 1e-12, 1e-12);
      }
      const std::string again = fmt::format("from{}to{}", i, j);
      RunAs(layouts[j], kColumnsSavedStep, again, load);
      const auto diff = checkpoint::Diff({.a = Saved(name(i)), .b = Saved(again)});
      ASSERT_TRUE(diff.ok()) << diff.status();
      EXPECT_GT(diff->num_tensors, 60);
      EXPECT_TRUE(diff->same_state);
    }
  }
}

}  // namespace
}  // namespace mt::train
