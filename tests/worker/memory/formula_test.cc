// The memory that a rank of a job plans, kind by kind, against the formulas of common/spec: the
// model's chunks, flat buffers and optimizer state are built and planned as the engine does,
// without allocating anything. Weights, gradients and state must be equal, activations within 2 %,
// with gathered inputs (of the last ranks) and without.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/math.h"
#include "common/spec/derived.h"
#include "common/spec/memory_formula.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/common/spec/job_text.h"
#include "worker/engine/state_snapshot.h"
#include "worker/memory/memory.h"
#include "worker/model/gpt_model.h"
#include "worker/parallel/schedule/job_request.h"
#include "worker/params/flat_layout.h"
#include "worker/params/param_store.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using memory::Kind;

// The tensor ranks of a plan, which makes no calls.
class SilentGroup final : public comm::ProcessGroup {
 public:
  SilentGroup(int rank, int size)
      : ProcessGroup({.name = "tp", .members = Members(size), .my_index = rank}, {}) {}

 private:
  static std::vector<int> Members(int size) {
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    return members;
  }
  Status DoCall(kernels::Stream& /*stream*/, const Call& call,
                base::MonotonicTime /*deadline*/) override {
    return base::Internal("{} while planning", call.Describe());
  }
  void OnBroken() override {}
};

struct Place {
  int stage = 0;
  int tp_rank = 0;
  int dp_rank = 0;
  bool keep_inputs = false;
};

memory::BytesByKind Planned(const v1::JobSpec& job, const parallel::Schedule& schedule,
                            const Place& place, kernels::Backend* backend) {
  const v1::Parallel& parallel = job.parallel();
  model::GptConfig config = model::ConfigFromJob(job);
  config.shard = {.rank = place.tp_rank,
                  .size = static_cast<int>(parallel.tensor()),
                  .sequence_parallel = parallel.sequence_parallel()};
  config.keep_inputs = place.keep_inputs;
  std::vector<model::GptModel::Chunk> chunks;
  for (const layout::ModelChunk& chunk : LayerSplitOf(job).OfStage(place.stage)) {
    chunks.push_back(
        {.place = chunk,
         .slots =
             schedule.slots[static_cast<size_t>(place.stage)][static_cast<size_t>(chunk.chunk)]});
  }
  SilentGroup group(place.tp_rank, config.shard.size);
  parallel::TensorParallel tensor(&group, parallel.sequence_parallel());
  const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
  model::GptModel model({.config = config,
                         .chunks = chunks,
                         .max_microbatches = schedule.microbatches,
                         .tensor = config.shard.size > 1 ? &tensor : nullptr,
                         .backend = backend,
                         .stream = stream.get()});
  params::Registry registry;
  model.RegisterParams(&registry);
  const int64_t bytes =
      parallel.has_bucket_size() ? parallel.bucket_size() : params::kMinBucketBytes;
  const params::FlatLayout layout(
      {.registry = &registry,
       .dp_size = parallel.data(),
       .min_bucket_elements =
           base::CeilDiv(bytes, kernels::SizeOf(kernels::AccumulatorOf(config.dtype)))});
  const int moments = job.optimizer().type() == v1::Optimizer::TYPE_SGD ? 1 : 2;
  params::ParamStore store(&registry, &layout, config.dtype,
                           {.zero_stage = static_cast<int>(parallel.zero_stage()),
                            .dp_rank = place.dp_rank,
                            .moments = moments});
  memory::MemoryPlan plan;
  store.Plan(&plan);
  model.PlanActivations(&plan);
  if (job.checkpoint().async_save())
    plan.Reserve(Kind::kLibraries, engine::StateSnapshot::BytesOf(store));
  return plan.bytes();
}

struct Case {
  const char* name;
  std::vector<std::string> overrides;
  bool on_gpu = false;  // stored as there; planned by the CPU's ops all the same
};

const std::vector<std::string> kLlama = {"model.position=rope",     "model.norm=rmsnorm",
                                         "model.activation=swiglu", "model.kv_heads=2",
                                         "model.bias=false",        "model.tie_embeddings=false",
                                         "model.ffn_size=192"};

std::vector<std::string> Llama(std::vector<std::string> more) {
  more.insert(more.begin(), kLlama.begin(), kLlama.end());
  return more;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"one_rank", {"parallel.data=1"}},
      {"dp2_zero1", {"parallel.data=2", "parallel.zero_stage=1"}},
      {"tp2", {"parallel.tensor=2", "parallel.sequence_parallel=false"}},
      {"tp2_sp_selective", {"parallel.tensor=2", "training.recompute.mode=selective"}},
      {"tp2_sp_llama", Llama({"parallel.tensor=2", "training.precision=bf16"})},
      {"tp2_qk_norm",
       {"parallel.tensor=2", "parallel.sequence_parallel=false", "model.qk_norm=true"}},
      {"tp4_sp_full_fp64",
       {"parallel.tensor=4", "training.recompute.mode=full", "training.precision=fp64"}},
      {"pp4_1f1b", {"parallel.pipeline=4", "parallel.data=1"}},
      {"pp4_gpipe_llama_block",
       Llama({"parallel.pipeline=4", "parallel.schedule=gpipe", "training.recompute.mode=full",
              "training.recompute.method=block"})},
      {"pp2_v2_dp2_zero1_bf16",
       {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.data=2",
        "parallel.zero_stage=1", "training.precision=bf16"}},
      {"pp4_v2_llama_full", Llama({"parallel.pipeline=4", "parallel.virtual_stages=2",
                                   "training.recompute.mode=full", "parallel.data=1"})},
      {"cube_tp2_pp2_dp2",
       Llama({"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2",
              "parallel.zero_stage=1", "model.qk_norm=true", "training.precision=fp16"})},
      {"ends_alone", {"parallel.pipeline=4", "parallel.layout=\"E|tttt|tttt|L\""}},
      {"a_chunk_that_passes_on",
       {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.layout=\"Etttt|||ttttL\""}},
      {"small_buckets", {"parallel.bucket_size=100000", "parallel.data=4"}},
      {"parallel_residual_sgd",
       {"model.parallel_residual=true", "optimizer.type=sgd", "optimizer.momentum=0.9",
        "parallel.tensor=2"}},
      {"padded_heads", {"model.head_dim=20"}, true},
      {"padded_heads_bf16_cube",
       Llama({"model.head_dim=12", "model.qk_norm=true", "parallel.tensor=2", "parallel.pipeline=2",
              "parallel.data=2", "parallel.zero_stage=1", "training.precision=bf16"}),
       true},
      {"uneven_groups", {"training.recompute.mode=full", "training.recompute.layers=3"}},
      {"a_copy_for_saves", {"checkpoint.async_save=true"}},
      {"a_copy_for_saves_sgd",
       {"checkpoint.async_save=true", "optimizer.type=sgd", "parallel.data=4"}},
      {"a_copy_for_saves_cube",
       Llama({"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2",
              "parallel.zero_stage=1", "training.precision=bf16", "checkpoint.async_save=true"})},
  };
  return cases;
}

class PlannedBytes : public testing::TestWithParam<Case> {};

TEST_P(PlannedBytes, AreTheFormulas) {
  std::vector<std::string> overrides = {"model.layers=8", "model.seq_length=64",
                                        "training.micro_batch_size=2",
                                        "training.global_batch_size=16", "parallel.data=1"};
  const auto& more = GetParam().overrides;
  overrides.insert(overrides.end(), more.begin(), more.end());
  const Loaded loaded = LoadOnCpu(overrides);
  ASSERT_EQ(FormatFaults(loaded.faults), "");
  v1::JobSpec job = loaded.job;
  if (GetParam().on_gpu) {
    ASSERT_NE(HeadDim(job.model()) % 16, 0);
    job.mutable_placement()->set_device(v1::Placement::DEVICE_GPU);
  }
  const parallel::Schedule schedule =
      parallel::GenerateSchedule(parallel::ScheduleRequestOf(job, MicrobatchesPerStep(job)))
          .value();
  const auto backend = kernels::cpu::MakeCpuBackend({}).value();
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const RankMemory formula = MemoryOf(job, stage, schedule.slots[static_cast<size_t>(stage)]);
    for (const bool last : {false, true}) {
      const Place place{.stage = stage,
                        .tp_rank = last ? static_cast<int>(job.parallel().tensor()) - 1 : 0,
                        .dp_rank = last ? static_cast<int>(job.parallel().data()) - 1 : 0,
                        .keep_inputs = last};
      const memory::BytesByKind planned = Planned(job, schedule, place, backend.get());
      const auto of = [&](Kind kind) { return planned[static_cast<size_t>(kind)]; };
      SCOPED_TRACE(fmt::format("stage {}, tp {}, dp {}", stage, place.tp_rank, place.dp_rank));
      EXPECT_EQ(formula.weights, of(Kind::kWeights));
      EXPECT_EQ(formula.gradients, of(Kind::kGradients));
      EXPECT_EQ(formula.optimizer, of(Kind::kOptimizer));
      EXPECT_EQ(formula.save_copy, of(Kind::kLibraries)) << "where Planned puts it";
      const int64_t activations = formula.activations + (last ? formula.gathered_inputs : 0);
      EXPECT_NEAR(static_cast<double>(activations), static_cast<double>(of(Kind::kActivations)),
                  0.02 * static_cast<double>(of(Kind::kActivations)));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, PlannedBytes, testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mt::spec
