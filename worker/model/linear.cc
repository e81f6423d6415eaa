// Registers one parameter per part, joined, so that the parts form one matrix in memory, and calls
// the products of kernels/ops/linear.h.
#include "worker/model/linear.h"

#include <array>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::model {

using kernels::Tensor;

namespace {

int64_t AllOutputs(const Linear::Args& args) {
  int64_t n = 0;
  for (const Linear::Part& part : args.parts) n += part.outputs;
  return n;
}

// This rank's share of a size if it is sharded, else the size itself.
int64_t Share(int64_t size, bool cut, const TensorShard& shard) {
  return cut ? base::DivExact(size, shard.size) : size;
}

// The same with each unit as stored.
int64_t StoredShare(int64_t size, bool cut, const TensorShard& shard, const Linear::Args& args) {
  const int64_t share = Share(size, cut, shard);
  return cut ? base::DivExact(share, args.unit) * args.stored_unit : share;
}

std::vector<int64_t> ForwardRows(const GptConfig& config) {
  std::vector<int64_t> rows;
  if (!config.shards_products(/*beside=*/false)) rows.push_back(config.tokens());
  if (config.shards_products(/*beside=*/true)) rows.push_back(config.rows());
  return rows;
}

}  // namespace

Linear::Linear(const GptConfig& config, Args args)
    : dtype_(config.dtype),
      tokens_(config.tokens()),
      forward_rows_(ForwardRows(config)),
      separate_act_(config.deterministic),
      shard_(config.shard),
      args_(std::move(args)),
      inputs_(StoredShare(args_.inputs, !by_outputs(), shard_, args_)),
      outputs_(StoredShare(AllOutputs(args_), by_outputs(), shard_, args_)) {
  CHECK(!args_.parts.empty());
}

void Linear::Register(params::Registry* registry) {
  params::ParamSpec weight = {.region = params::Region::kMatrix,
                              .init = params::InitKind::kNormal,
                              .std = args_.std,
                              .decay = true,
                              .layer = args_.layer};
  weight.by_columns = !by_outputs();
  if (args_.stored_unit != args_.unit) {
    weight.units = {.dim = by_outputs() ? 0 : 1, .size = args_.unit, .stored = args_.stored_unit};
  }
  params::ParamSpec bias = {
      .region = by_outputs() ? params::Region::kShardedVector : params::Region::kReplicatedVector,
      .layer = args_.layer,
      .partial = !by_outputs() && shard_.cuts_rows()};
  if (by_outputs()) bias.units = weight.units;
  for (const Part& part : args_.parts) {
    weight.name = part.name + ".weight";
    weight.shape = {part.outputs, args_.inputs};
    weight.stored = {StoredShare(part.outputs, by_outputs(), shard_, args_), inputs_};
    weight.begin = by_outputs()
                       ? std::array<int64_t, 2>{shard_.rank * Share(part.outputs, true, shard_), 0}
                       : std::array<int64_t, 2>{0, shard_.rank * Share(args_.inputs, true, shard_)};
    weight.joined = !weight_ids_.empty();
    weight_ids_.push_back(registry->Add(weight));
  }
  if (!args_.bias) return;
  for (const Part& part : args_.parts) {
    bias.name = part.name + ".bias";
    bias.shape = {part.outputs};
    bias.stored = {StoredShare(part.outputs, by_outputs(), shard_, args_)};
    bias.begin = {by_outputs() ? shard_.rank * Share(part.outputs, true, shard_) : 0, 0};
    bias.joined = !bias_ids_.empty();
    bias_ids_.push_back(registry->Add(bias));
  }
}

void Linear::Bind(const params::ParamStore& store) {
  w_ = store.WeightSpan(weight_ids_.front(), weight_ids_.back());
  dw_ = store.GradSpan(weight_ids_.front(), weight_ids_.back());
  if (!adds_bias()) return;
  bias_ = store.WeightSpan(bias_ids_.front(), bias_ids_.back());
  dbias_ = store.GradSpan(bias_ids_.front(), bias_ids_.back());
}

void Linear::PlanWorkspace(ScratchPlan* plan) const {
  const kernels::DType accumulator = kernels::AccumulatorOf(dtype_);
  const Tensor x = Placeholder(dtype_, {tokens_, inputs_});
  const Tensor y = Placeholder(dtype_, {tokens_, outputs_});
  const Tensor w = Placeholder(dtype_, {outputs_, inputs_});
  kernels::LinearOps& ops = plan->pass->backend->linear();
  kernels::LinearWeightGradArgs weight_grad = {
      .dy = y, .x = x, .dw = Placeholder(accumulator, w.shape)};
  if (adds_bias() && !args_.act_behind) weight_grad.dbias = Placeholder(accumulator, {outputs_});
  plan->NeedWorkspace(ops.Plan(weight_grad));
  if (plan->accumulates) {
    weight_grad.mode = kernels::GradMode::kAdd;
    plan->NeedWorkspace(ops.Plan(weight_grad));
  }
  for (const int64_t rows : forward_rows_) PlanForward(plan, rows);
  if (args_.act_before) {
    const Tensor pre =
        Placeholder(dtype_, {tokens_, kernels::PreColumns(*args_.act_before, inputs_)});
    kernels::LinearInputGradActArgs input_grad = {
        .dy = y, .w = w, .pre = pre, .act = *args_.act_before, .dpre = pre};
    if (args_.bias) input_grad.dbias = Placeholder(accumulator, {pre.shape[1]});
    plan->NeedWorkspace(ops.Plan(input_grad));
  } else {
    plan->NeedWorkspace(ops.Plan(kernels::LinearInputGradArgs{.dy = y, .w = w, .dx = x}));
  }
}

void Linear::PlanForward(ScratchPlan* plan, int64_t rows) const {
  kernels::LinearOps& ops = plan->pass->backend->linear();
  kernels::LinearForwardArgs forward = {.x = Placeholder(dtype_, {rows, inputs_}),
                                        .w = Placeholder(dtype_, {outputs_, inputs_}),
                                        .y = Placeholder(dtype_, {rows, outputs_})};
  if (adds_bias()) forward.bias = Placeholder(dtype_, {outputs_});
  if (!args_.act_behind || separate_act_) return plan->NeedWorkspace(ops.Plan(forward));
  const int64_t columns = outputs_ / kernels::PreColumns(*args_.act_behind, 1);
  plan->NeedWorkspace(
      ops.Plan(kernels::LinearForwardActArgs{.x = forward.x,
                                             .w = forward.w,
                                             .bias = forward.bias,
                                             .act = *args_.act_behind,
                                             .pre = forward.y,
                                             .y = Placeholder(dtype_, {rows, columns})}));
}

void Linear::Forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  pass.backend->linear().Forward(
      *pass.stream, {.x = x, .w = w_, .bias = bias_, .y = y, .workspace = pass.workspace});
}

void Linear::ForwardAct(const Pass& pass, const Tensor& x, const Tensor& pre,
                        const Tensor& y) const {
  CHECK(args_.act_behind.has_value());
  if (separate_act_) {
    Forward(pass, x, pre);
    pass.backend->act().Act(*pass.stream, {.kind = *args_.act_behind, .pre = pre, .y = y});
    return;
  }
  pass.backend->linear().ForwardAct(*pass.stream, {.x = x,
                                                   .w = w_,
                                                   .bias = bias_,
                                                   .act = *args_.act_behind,
                                                   .pre = pre,
                                                   .y = y,
                                                   .workspace = pass.workspace});
}

void Linear::InputGrad(const Pass& pass, const Tensor& dy, const Tensor& dx) const {
  pass.backend->linear().InputGrad(*pass.stream,
                                   {.dy = dy, .w = w_, .dx = dx, .workspace = pass.workspace});
}

void Linear::InputGradAct(const Pass& pass, const Tensor& dy, const Tensor& pre, const Tensor& dpre,
                          const Tensor& dbias) const {
  CHECK(args_.act_before.has_value());
  CHECK_EQ(static_cast<bool>(dbias), args_.bias) << "memory was planned for the other";
  pass.backend->linear().InputGradAct(*pass.stream, {.dy = dy,
                                                     .w = w_,
                                                     .pre = pre,
                                                     .act = *args_.act_before,
                                                     .dpre = dpre,
                                                     .mode = pass.mode,
                                                     .dbias = dbias,
                                                     .workspace = pass.workspace});
}

void Linear::WeightGrad(const Pass& pass, const Tensor& dy, const Tensor& x) const {
  pass.backend->linear().WeightGrad(*pass.stream, {.dy = dy,
                                                   .x = x,
                                                   .mode = pass.mode,
                                                   .dw = dw_,
                                                   .dbias = args_.act_behind ? Tensor{} : dbias_,
                                                   .workspace = pass.workspace});
  for (const params::ParamId id : weight_ids_) pass.Done(id);
  if (!adds_bias()) return;
  for (const params::ParamId id : bias_ids_) pass.Done(id);
}

params::ParamId Linear::residual_norm_bias() const {
  CHECK(!by_outputs() && args_.parts.size() == 1);
  return args_.bias ? bias_ids_.front() : params::ParamId::kNone;
}

}  // namespace mt::model
