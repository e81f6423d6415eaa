// Everything that several ranks hold is bit-equal on all of them after every step: data parallel
// replicas, parameters replicated over tensor ranks, both copies of a tied table. Also with skipped
// steps, because a rank that took such a step would differ from then on.
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#include <xxhash.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/core/tensor.h"
#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"
#include "worker/params/param_store.h"

namespace mt::parity {
namespace {

using train::RankOutcome;
using train::RunJob;
using train::TrainArgs;

// One parameter, or one tensor rank's part of it, after one step.
struct Part {
  int64_t step = 0;
  std::string name;
  std::array<int64_t, 2> begin = {};
  auto operator<=>(const Part&) const = default;
};

// Digests of all ranks, by what they are of.
class Digests {
 public:
  void Add(int64_t step, int rank, const params::ParamStore& store) {
    const std::lock_guard lock(mu_);
    for (int64_t i = 0; i < store.registry().size(); ++i) {
      const auto id = static_cast<params::ParamId>(i);
      const params::ParamSpec& spec = store.registry()[id];
      const kernels::Tensor weight = store.Weight(id);
      of_[{step, spec.name, spec.begin}][rank] =
          XXH3_64bits(weight.data, static_cast<size_t>(weight.Bytes()));
      if (spec.copy) ++num_copies_;
      if (spec.partial) ++num_partial_;
    }
  }

  // Ranks that hold the same part hold the same bits; returns by which axes they lie apart.
  std::set<std::string> Check(int tp, int dp) const {
    std::set<std::string> apart;
    for (const auto& [part, ranks] : of_) {
      const auto& [first_rank, digest] = *ranks.begin();
      for (const auto& [rank, other] : ranks) {
        EXPECT_EQ(other, digest) << part.name << " after step " << part.step << ": rank " << rank
                                 << " against rank " << first_rank;
        if (rank % tp != first_rank % tp) apart.insert("tensor");
        if (rank / tp % dp != first_rank / tp % dp) apart.insert("data");
        if (rank / (tp * dp) != first_rank / (tp * dp)) apart.insert("pipeline");
      }
    }
    return apart;
  }
  // Values move, or equality would say little.
  void CheckMoved(const std::string& name, int64_t from, int64_t to, bool moved) const {
    EXPECT_EQ(of_.at({from, name, {0, 0}}) != of_.at({to, name, {0, 0}}), moved)
        << name << " from step " << from << " to step " << to;
  }
  int64_t num_copies() const { return num_copies_; }
  int64_t num_partial() const { return num_partial_; }

 private:
  std::mutex mu_;
  std::map<Part, std::map<int, uint64_t>> of_;
  int64_t num_copies_ = 0;
  int64_t num_partial_ = 0;
};

class ReplicasTest : public testing::Test {
 protected:
  void Run(const Layout& layout, std::vector<std::string> more,
           const std::function<void(int64_t step, engine::StepVector* mine)>& on_rank_5 = {}) {
    std::vector<std::string> fields = OverridesOf(layout);
    fields.insert(fields.end(), more.begin(), more.end());
    const std::vector<RankOutcome> ranks =
        RunJob(Runner::JobOf(layout.family, fields),
               {.root = runner_.root(), .adjust = [&](int rank, TrainArgs* args) {
                  args->after_step = [this, rank](int64_t step, const params::ParamStore& store) {
                    digests_.Add(step, rank, store);
                  };
                  if (rank == 5) args->end_of_step = on_rank_5;
                }});
    for (const RankOutcome& rank : ranks) {
      EXPECT_TRUE(rank.result.completed) << rank.result.status;
    }
  }

  Runner runner_;
  Digests digests_;
};

TEST_F(ReplicasTest, TiedTablesGainsAndDataCopiesAreEqualUnderZero) {
  Run({.family = Family::kGpt2,
       .tp = 2,
       .pp = 2,
       .dp = 2,
       .virtual_stages = 2,
       .sequence_parallel = true,
       .zero_stage = 1,
       .schedule = Schedule::kInterleaved},
      {"training.precision=fp32", "training.train_iters=8"});
  EXPECT_EQ(digests_.Check(2, 2), (std::set<std::string>{"tensor", "data", "pipeline"}));
  EXPECT_GT(digests_.num_copies(), 0) << "the tied table";
  EXPECT_GT(digests_.num_partial(), 0) << "gains under sequence parallelism";
  digests_.CheckMoved("embedding.word.weight", 1, 8, true);
}

TEST_F(ReplicasTest, SkippedStepsMoveNoRankInHalfPrecision) {
  Run({.family = Family::kGpt2, .tp = 2, .pp = 2, .dp = 2, .recompute = Recompute::kFull},
      {"training.precision=fp16", "training.train_iters=8", "training.loss_scale.initial=65536"},
      [](int64_t step, engine::StepVector* mine) {
        if (step == 3 || step == 6) mine->sums.nonfinite += 1;
      });
  EXPECT_EQ(digests_.Check(2, 2), (std::set<std::string>{"tensor", "data", "pipeline"}));
  for (int64_t step = 2; step <= 8; ++step) {
    digests_.CheckMoved("embedding.word.weight", step - 1, step, step != 3 && step != 6);
  }
}

TEST_F(ReplicasTest, GainsOfQueriesAndKeysAreEqualOnAllTensorRanks) {
  Run({.family = Family::kLlama, .tp = 4, .dp = 2, .zero_stage = 1},
      {"training.precision=fp32", "training.train_iters=8", "model.qk_norm=true"});
  EXPECT_EQ(digests_.Check(4, 2), (std::set<std::string>{"tensor", "data"}));
  EXPECT_GT(digests_.num_partial(), 0) << "each tensor rank has gradients of its heads only";
}

}  // namespace
}  // namespace mt::parity
