// What ranks save of parameters of random shapes, cut every way that a layout cuts them: over all
// ranks each element of each tensor once, with its own value; what they load is what they keep.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "worker/engine/stage_work.h"
#include "worker/engine/step_schedules.h"
#include "worker/memory/memory.h"
#include "worker/params/state_parts.h"
#include "worker/train/run_state.h"

namespace mt::train {
namespace {

using params::ParamSpec;

// How tensor ranks hold a parameter.
enum class Cut : uint8_t { kRows, kPaddedRows, kColumns, kWhole, kVector };

struct Logical {
  std::string name;
  kernels::Shape shape;
  Cut cut = Cut::kWhole;
  int stage = 0;
  bool copied_to_last_stage = false;
};

std::vector<Logical> RandomModel(std::mt19937* random, int tp, int stages) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(*random);
  };
  std::vector<Logical> model;
  for (int i = 0; i < 12; ++i) {
    Logical p{.name = "p" + std::to_string(i), .stage = static_cast<int>(pick(0, stages - 1))};
    p.cut = static_cast<Cut>(pick(0, 4));
    const int64_t rows = pick(1, 40);
    const int64_t columns = pick(1, 30);
    p.shape = p.cut == Cut::kRows      ? kernels::Shape{rows * tp, columns}
              : p.cut == Cut::kColumns ? kernels::Shape{rows, columns * tp}
              : p.cut == Cut::kVector  ? kernels::Shape{rows * tp}
                                       : kernels::Shape{rows, columns};
    model.push_back(p);
  }
  model.push_back({.name = "table",
                   .shape = {pick(1, 100), pick(1, 20)},
                   .cut = Cut::kPaddedRows,
                   .copied_to_last_stage = true});
  return model;
}

ParamSpec SpecOf(const Logical& p, int tp_rank, int tp_size, bool copy) {
  ParamSpec spec{.name = p.name, .shape = p.shape, .stored = p.shape, .copy = copy};
  spec.region = p.copied_to_last_stage  ? params::Region::kWordEmbedding
                : p.cut == Cut::kVector ? params::Region::kShardedVector
                : p.cut == Cut::kWhole  ? params::Region::kPositionTable
                                        : params::Region::kMatrix;
  switch (p.cut) {
    case Cut::kRows:
    case Cut::kVector:
    case Cut::kPaddedRows: {
      const int64_t rows = (p.shape[0] + tp_size - 1) / tp_size + (p.cut == Cut::kPaddedRows);
      spec.stored = p.shape.rank() == 1 ? kernels::Shape{rows} : kernels::Shape{rows, p.shape[1]};
      spec.begin = {tp_rank * rows, 0};
      break;
    }
    case Cut::kColumns:
      spec.by_columns = true;
      spec.stored = {p.shape[0], p.shape[1] / tp_size};
      spec.begin = {0, tp_rank * spec.stored[1]};
      break;
    case Cut::kWhole:
      break;
  }
  return spec;
}

// One rank's parameters in memory, every state a function of tensor, state and logical element.
class Rank {
 public:
  struct Place {
    int tp = 0, dp = 0, stage = 0;
    int tp_size = 1, dp_size = 1, stages = 1;
    int zero_stage = 0;
    int moments = 2;
  };
  Rank(const std::vector<Logical>& model, const Place& at, kernels::DType dtype)
      : backend_(kernels::cpu::MakeCpuBackend({.num_threads = 1}).value()) {
    for (const Logical& p : model) {
      const bool copy = p.copied_to_last_stage && at.stage > 0 && at.stage == at.stages - 1;
      if (p.stage == at.stage || copy) registry_.Add(SpecOf(p, at.tp, at.tp_size, copy));
    }
    layout_ = std::make_unique<params::FlatLayout>(params::FlatLayout::Args{
        .registry = &registry_, .dp_size = at.dp_size, .min_bucket_elements = 200});
    store_ = std::make_unique<params::ParamStore>(
        &registry_, layout_.get(), dtype,
        params::StateShare{.zero_stage = at.zero_stage, .dp_rank = at.dp, .moments = at.moments});
    memory::MemoryPlan plan;
    store_->Plan(&plan);
    memory_ = memory::Memory::Allocate(backend_->device(), plan, int64_t{1} << 30).value();
    store_->Bind(*memory_);
    const layout::Mesh mesh =
        layout::Mesh::Create({.tp = at.tp_size, .dp = at.dp_size, .pp = at.stages}).value();
    const int world_rank = mesh.WorldRankOf({.tp = at.tp, .dp = at.dp, .pp = at.stage});
    routes_ = parallel::RoutesOf(*store_, {mesh, world_rank, /*tied_tables=*/true});
  }
  const params::ParamStore& store() const { return *store_; }
  std::vector<checkpoint::SliceToSave> ToSave() const { return SlicesToSave(*store_, routes_); }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  params::Registry registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<memory::Memory> memory_;
  std::vector<parallel::BucketRoute> routes_;
};

// Exact in every type: below 2^24.
double ValueOf(const std::string& key, int64_t element) {
  return static_cast<double>(std::hash<std::string>()(key) % 1000 * 5000) +
         static_cast<double>(element);
}

double& At(void* data, int64_t i) { return static_cast<double*>(data)[i]; }

// Calls fn(element of the tensor, index in memory) for each element of the box.
template <class Slice, class Fn>
void ForEachElement(const Slice& slice, const Fn& fn) {
  const bool matrix = slice.shape.size() == 2;
  const int64_t columns = matrix ? slice.shape[1] : 1;
  const int64_t stride = matrix ? slice.global_shape[1] : 1;
  const int64_t first_column = matrix ? slice.offset[1] : 0;
  for (int64_t r = 0; r < slice.shape[0]; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      fn((slice.offset[0] + r) * stride + first_column + c, r * columns + c);
    }
  }
}

struct StateCase {
  int tp, dp, stages, zero_stage, moments;
};

class StateSlicesTest : public ::testing::TestWithParam<StateCase> {};

TEST_P(StateSlicesTest, EveryElementIsSavedOnceWithItsValue) {
  const StateCase c = GetParam();
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const std::vector<Logical> model = RandomModel(&random, c.tp, c.stages);
    std::map<std::string, std::vector<int>> times_saved;
    for (int world = 0; world < c.tp * c.dp * c.stages; ++world) {
      const Rank rank(model,
                      {.tp = world % c.tp,
                       .dp = world / c.tp % c.dp,
                       .stage = world / (c.tp * c.dp),
                       .tp_size = c.tp,
                       .dp_size = c.dp,
                       .stages = c.stages,
                       .zero_stage = c.zero_stage,
                       .moments = c.moments},
                      kernels::DType::kF64);
      for (const auto& slice : SlicesToLoad(rank.store())) {
        ForEachElement(slice, [&](int64_t element, int64_t i) {
          At(slice.data, i) = ValueOf(slice.key, element);
        });
      }
      for (const auto& slice : rank.ToSave()) {
        int64_t elements = 1;
        for (const int64_t dim : slice.global_shape) elements *= dim;
        std::vector<int>& times = times_saved[slice.key];
        times.resize(static_cast<size_t>(elements), 0);
        ForEachElement(slice, [&](int64_t element, int64_t i) {
          ++times.at(static_cast<size_t>(element));
          ASSERT_EQ(static_cast<const double*>(slice.data)[i], ValueOf(slice.key, element))
              << slice.key << " element " << element;
        });
      }
    }
    ASSERT_EQ(times_saved.size(), model.size() * static_cast<size_t>(1 + c.moments));
    for (const auto& [key, times] : times_saved) {
      for (size_t i = 0; i < times.size(); ++i) ASSERT_EQ(times[i], 1) << key << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StateSlicesTest,
                         ::testing::Values(StateCase{1, 1, 1, 0, 2}, StateCase{1, 3, 1, 0, 2},
                                           StateCase{1, 3, 1, 1, 2}, StateCase{4, 1, 1, 0, 1},
                                           StateCase{3, 1, 2, 0, 0}, StateCase{2, 2, 2, 0, 2},
                                           StateCase{2, 2, 3, 1, 2}, StateCase{4, 2, 2, 1, 1}));

TEST(StateNamesTest, MomentsAreNamedAfterTheRule) {
  std::mt19937 random(1);
  const std::vector<Logical> model = RandomModel(&random, 1, 1);
  const auto has = [&](int moments, const std::string& prefix) {
    const Rank rank(model, {.moments = moments}, kernels::DType::kF32);
    const auto slices = rank.ToSave();
    return std::any_of(slices.begin(), slices.end(),
                       [&](const auto& slice) { return slice.key.starts_with(prefix); });
  };
  EXPECT_TRUE(has(2, "exp_avg/") && has(2, "exp_avg_sq/") && !has(2, "momentum/"));
  EXPECT_TRUE(has(1, "momentum/") && !has(1, "exp_avg/"));
  EXPECT_TRUE(has(0, "weights/") && !has(0, "momentum/") && !has(0, "exp_avg/"));
}

TEST(StateNamesTest, SixteenBitWeightsAreSavedAsTheirMasters) {
  std::mt19937 random(1);
  const Rank rank(RandomModel(&random, 1, 1), {}, kernels::DType::kBf16);
  for (const auto& slice : rank.ToSave()) {
    EXPECT_EQ(slice.dtype, kernels::DType::kF32) << slice.key;
  }
}

TEST(MicrobatchWindowTest, IsWhatAStageHasUnderWay) {
  using parallel::ScheduleKind;
  const auto window = [](parallel::ScheduleRequest request, int stage) {
    return engine::MicrobatchWindow(parallel::GenerateSchedule(request).value(), stage);
  };
  EXPECT_EQ(window({.stages = 1, .microbatches = 9}, 0), 1);
  EXPECT_EQ(window({.stages = 4, .microbatches = 9}, 0), 4);
  EXPECT_EQ(window({.stages = 4, .microbatches = 9}, 3), 1);
  EXPECT_EQ(window({.kind = ScheduleKind::kGPipe, .stages = 4, .microbatches = 9}, 3), 9);
  // More than a group of microbatches, since chunk 1 begins late.
  EXPECT_GE(
      window({.kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 8, .chunks = 2}, 0),
      2);
  EXPECT_LE(
      window({.kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 8, .chunks = 2}, 0),
      8);
}

TEST(StepSchedulesTest, OnePerNumberOfMicrobatches) {
  const parallel::ScheduleRequest request{
      .kind = parallel::ScheduleKind::kInterleaved, .stages = 2, .microbatches = 8, .chunks = 2};
  engine::StepSchedules schedules = engine::StepSchedules::Create(request).value();
  EXPECT_EQ(schedules.largest().microbatches, 8);
  for (const int microbatches : {2, 2, 4, 8, 6}) {
    const auto schedule = schedules.OfStep(microbatches);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    parallel::ScheduleRequest direct = request;
    direct.microbatches = microbatches;
    EXPECT_EQ((*schedule)->actions, parallel::GenerateSchedule(direct).value().actions);
  }
  EXPECT_EQ(schedules.OfStep(3).status().code(), absl::StatusCode::kInvalidArgument);
  const parallel::Schedule& evaluation = schedules.OfEvaluation(5);
  EXPECT_TRUE(evaluation.forward_only);
  EXPECT_EQ(evaluation.microbatches, 5);
  EXPECT_EQ(evaluation.slots, schedules.largest().slots);
}

}  // namespace
}  // namespace mt::train
