// A network cut into stages with several slots gives what one stage gives: the seam that pipeline
// schedules use.
#include "worker/model/stage.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/model/model_rig.h"
#include "worker/model/batch.h"

namespace mt::model {
namespace {

// One stage with its own parameters and memory, on the rig's backend.
class StageRig {
 public:
  StageRig(const GptConfig& config, const Stage::Args& args, kernels::Backend* backend)
      : backend_(backend),
        stream_(backend->device().CreateStream(kernels::StreamPriority::kLow)),
        stage_(config, args),
        tables_(config) {
    for (size_t slot = 0; slot < args.slots; ++slot) {
      batches_.emplace_back(config.seq, config.micro_batch);
    }
    stage_.Register(&registry_);
    layout_ = std::make_unique<params::FlatLayout>(
        params::FlatLayout::Args{.registry = &registry_, .min_bucket_elements = 1024});
    store_ = std::make_unique<params::ParamStore>(&registry_, layout_.get(), config.dtype);
    memory::MemoryPlan plan;
    store_->Plan(&plan);
    for (BatchBuffer& batch : batches_) batch.Plan(&plan);
    tables_.Plan(&plan);
    auto kept = memory::StackArena::Measuring();
    stage_.TakeKept(&kept);
    const memory::Block kept_block = plan.Reserve(memory::Kind::kActivations, kept.peak_bytes());
    auto scratch = memory::StackArena::Measuring();
    TakeScratch(&scratch);
    const memory::Block scratch_block =
        plan.Reserve(memory::Kind::kWorkspace, scratch.peak_bytes());
    auto memory = memory::Memory::Allocate(backend_->device(), plan, int64_t{1} << 32);
    CHECK(memory.ok()) << memory.status().ToString();
    memory_ = std::move(*memory);
    store_->Bind(*memory_);
    // A step before left gradients behind; the overwriting microbatch must not see them.
    const kernels::Tensor grads = store_->grads();
    std::fill_n(grads.Data<double>(), grads.NumElements(), 7.0);
    stage_.Bind(*store_);
    for (BatchBuffer& batch : batches_) batch.Bind(*memory_, backend_->device(), *stream_);
    tables_.Bind(*memory_, backend_->device(), *stream_);
    memory::StackArena real_kept(memory_->Data(kept_block), kept_block.bytes);
    stage_.TakeKept(&real_kept);
    memory::StackArena real_scratch(memory_->Data(scratch_block), scratch_block.bytes);
    TakeScratch(&real_scratch);
  }

  void TakeScratch(memory::StackArena* arena) {
    const Pass pass = MakePass(0);
    ScratchPlan plan = {.arena = arena, .pass = &pass};
    stage_.TakeScratch(&plan);
    arena->TakeWorkspace(arena->peak_bytes() - arena->used_bytes());
    workspace_ = arena->TakeWorkspace(plan.workspace_bytes);
  }

  Pass MakePass(size_t slot) const {
    return {.backend = backend_,
            .stream = stream_.get(),
            .batch = &batches_[slot].view(),
            .tables = &tables_,
            .workspace = workspace_};
  }
  void Load(size_t slot, const data::Microbatch& batch) {
    batches_[slot].Load(batch, backend_->device(), *stream_);
  }
  void CopyWeights(const ModelRig& from) {
    for (int32_t i = 0; i < registry_.size(); ++i) {
      const kernels::Tensor to = store_->Weight(params::ParamId{i});
      const params::ParamId id = from.IdOf(registry_[params::ParamId{i}].name);
      std::memcpy(to.data, from.store().Weight(id).data, static_cast<size_t>(to.Bytes()));
    }
  }
  std::vector<double> Grad(params::ParamId id) const {
    const kernels::Tensor grad = store_->Grad(id);
    const auto* data = grad.Data<double>();
    return {data, data + grad.NumElements()};
  }

  Stage& stage() { return stage_; }
  const params::Registry& registry() const { return registry_; }

 private:
  kernels::Backend* backend_;
  std::unique_ptr<kernels::Stream> stream_;
  Stage stage_;
  PositionTables tables_;
  std::vector<BatchBuffer> batches_;
  params::Registry registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<memory::Memory> memory_;
  kernels::Workspace workspace_;
};

void Send(const kernels::Tensor& from, const kernels::Tensor& to) {
  ASSERT_EQ(from.Bytes(), to.Bytes());
  std::memcpy(to.data, from.data, static_cast<size_t>(from.Bytes()));
}

TEST(Stage, ThreeStagesWithTwoSlotsGiveTheGradientsOfOne) {
  GptConfig config = SmallConfig();
  config.layers = 4;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0.1;
  const std::vector<data::Microbatch> batches = {RandomBatch(config, 1, 0),
                                                 RandomBatch(config, 2, 2)};
  ModelRig whole(config);
  whole.Run(batches[0], kernels::GradMode::kOverwrite, /*last=*/false);
  whole.Run(batches[1], kernels::GradMode::kAdd);

  constexpr size_t slots = 2;
  std::vector<std::unique_ptr<StageRig>> stages;
  for (const auto& [first, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 2}, {3, 1}}) {
    stages.push_back(std::make_unique<StageRig>(config,
                                                Stage::Args{.first_layer = first,
                                                            .num_layers = count,
                                                            .embedding = first == 0,
                                                            .head = first == 3,
                                                            .slots = slots},
                                                &whole.backend()));
    stages.back()->CopyWeights(whole);
  }
  double loss_scale = 1;
  double sums[2] = {0, 0};
  const LossArgs loss = {.seed = 1.0 / static_cast<double>(config.tokens()),
                         .loss_scale = &loss_scale,
                         .sums = {sums, kernels::DType::kF64, {2}}};
  // All forwards before all backwards: both slots are alive at once.
  for (const bool forward : {true, false}) {
    for (size_t slot = 0; slot < slots; ++slot) {
      for (size_t step = 0; step < stages.size(); ++step) {
        const size_t at = forward ? step : stages.size() - 1 - step;
        StageRig& rig = *stages[at];
        rig.Load(slot, batches[slot]);
        Pass pass = rig.MakePass(slot);
        if (slot > 0) pass.mode = kernels::GradMode::kAdd;
        if (forward) {
          rig.stage().Forward(pass, slot, loss);
          if (at + 1 < stages.size()) {
            Send(rig.stage().output(slot), stages[at + 1]->stage().input(slot));
          }
        } else {
          rig.stage().Backward(pass, slot);
          if (at > 0) {
            Send(rig.stage().input_grad(slot), stages[at - 1]->stage().output_grad(slot));
          }
        }
      }
    }
  }

  EXPECT_NEAR(sums[0], whole.TakeSums().loss, 1e-13 * sums[0]);
  for (const params::ParamId id : whole.Ids()) {
    std::vector<double> sum(whole.Grad(id).size(), 0.0);
    int holders = 0;
    for (const auto& stage : stages) {
      const auto own = stage->registry().Find(whole.NameOf(id));
      if (!own) continue;
      ++holders;
      const std::vector<double> part = stage->Grad(*own);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    // The tied table is held twice: the embedding's share and the head's.
    EXPECT_EQ(holders, whole.NameOf(id) == "embedding.word.weight" ? 2 : 1) << whole.NameOf(id);
    const std::vector<double> want = whole.Grad(id);
    EXPECT_LE(Distance(sum, want), 1e-13 * Norm(want) + 1e-17) << whole.NameOf(id);
  }
}

}  // namespace
}  // namespace mt::model
