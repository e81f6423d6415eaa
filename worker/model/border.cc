// AddNorm and its gradient with the model's parameters, dropout sites and kept tensors.
#include "worker/model/border.h"

#include <utility>

#include "common/base/check.h"

namespace mt::model {

using kernels::AddNormGradArgs;
using kernels::Partials;
using kernels::Tensor;
using params::ParamId;

Border::Border(const GptConfig& config, std::string norm_name, int layer)
    : config_(config), norm_name_(std::move(norm_name)), layer_(layer) {}

void Border::Register(params::Registry* registry) {
  if (!has_norm()) return;
  const kernels::Shape shape = {config_.hidden};
  params::ParamSpec spec = {
      .name = norm_name_ + ".weight",
      .shape = shape,
      .stored = shape,
      .region = params::Region::kReplicatedVector,
      .init = config_.norm_one_plus ? params::InitKind::kZero : params::InitKind::kOne,
      .layer = layer_,
      .partial = config_.shard.sequence_parallel};
  gain_id_ = registry->Add(spec);
  if (!has_shift()) return;
  spec.name = norm_name_ + ".bias";
  spec.init = params::InitKind::kZero;
  shift_id_ = registry->Add(spec);
}

void Border::Bind(const params::ParamStore& store) {
  if (has_norm()) {
    gain_ = store.Weight(gain_id_);
    dgain_ = store.Grad(gain_id_);
  }
  if (has_shift()) {
    shift_ = store.Weight(shift_id_);
    dshift_ = store.Grad(shift_id_);
  }
  if (incoming_.bias != ParamId::kNone) {
    bias_ = store.Weight(incoming_.bias);
    dbias_ = store.Grad(incoming_.bias);
  }
  if (incoming_.positions != ParamId::kNone) positions_ = store.Weight(incoming_.positions);
}

void Border::TakeKept(size_t slot, memory::StackArena* arena) {
  if (kept_.size() <= slot) kept_.resize(slot + 1);
  Kept& kept = kept_[slot];
  const int64_t rows = config_.tokens();
  kept.residual = arena->Take(config_.dtype, {rows, config_.hidden});
  if (!has_norm()) return;
  kept.y = arena->Take(config_.dtype, {rows, config_.hidden});
  if (has_shift()) kept.mean = arena->Take(kernels::AccumulatorOf(config_.dtype), {rows});
  kept.rstd = arena->Take(kernels::AccumulatorOf(config_.dtype), {rows});
}

void Border::PlanWorkspace(ScratchPlan* plan) {
  const kernels::DType accumulator = kernels::AccumulatorOf(config_.dtype);
  const Tensor rows = Placeholder(config_.dtype, {config_.tokens(), config_.hidden});
  const Tensor vector = Placeholder(accumulator, {config_.hidden});
  AddNormGradArgs args = {.dy = Partials(rows),
                          .dresidual_in = rows,
                          .residual_out = rows,
                          .gain = Placeholder(config_.dtype, {config_.hidden}),
                          .kind = config_.norm,
                          .one_plus = config_.norm_one_plus,
                          .dropout = MakeDropout(*plan->pass),
                          .batch = config_.micro_batch,
                          .dresidual = rows,
                          .dbranch = rows,
                          .dgain = vector,
                          .dbias = vector};
  args.rstd = Placeholder(accumulator, {config_.tokens()});
  if (has_shift()) {
    args.mean = args.rstd;
    args.dshift = vector;
  }
  const kernels::AddNormOps& ops = plan->pass->backend->add_norm();
  plan->NeedWorkspace(ops.WorkspaceBytes(args));
  args.dbias = {};
  plan->NeedWorkspace(ops.WorkspaceBytes(args));
  args.dbias = vector;
  args.dy = {};
  args.gain = args.dgain = args.dshift = {};
  plan->NeedWorkspace(ops.WorkspaceBytes(args));
}

void Border::Forward(const Pass& pass, size_t slot, const Pending& in) {
  const Kept& kept = kept_[slot];
  pass.backend->add_norm().AddNorm(*pass.stream, {.residual = in.residual,
                                                  .partials = in.partials,
                                                  .bias = bias_,
                                                  .position_table = positions_,
                                                  .positions = pass.batch->positions,
                                                  .batch = pass.batch->b,
                                                  .dropout = MakeDropout(pass),
                                                  .kind = config_.norm,
                                                  .eps = config_.norm_eps,
                                                  .one_plus = config_.norm_one_plus,
                                                  .gain = gain_,
                                                  .shift = shift_,
                                                  .residual_out = kept.residual,
                                                  .y = kept.y,
                                                  .mean = kept.mean,
                                                  .rstd = kept.rstd});
}

void Border::Backward(const Pass& pass, size_t slot, const Tensor& dy, BranchGrad* grad) const {
  AddNormGradArgs args = NormGradArgs(pass, slot);
  args.dy = Partials(dy);
  args.dresidual_in = grad->residual;
  args.dresidual = grad->residual;
  AddBranch(pass, *grad, &args);
  pass.backend->add_norm().AddNormGrad(*pass.stream, args);
  pass.Done(gain_id_);
  pass.Done(shift_id_);
  pass.Done(incoming_.bias);
}

void Border::BackwardNorm(const Pass& pass, size_t slot, const Tensor& dy,
                          const Tensor& dresidual) const {
  AddNormGradArgs args = NormGradArgs(pass, slot);
  args.dy = Partials(dy);
  args.dresidual = dresidual;
  args.dbranch = dresidual;
  pass.backend->add_norm().AddNormGrad(*pass.stream, args);
  pass.Done(gain_id_);
  pass.Done(shift_id_);
}

void Border::BackwardBranch(const Pass& pass, const Tensor& dout, BranchGrad* grad) const {
  AddNormGradArgs args = {.batch = pass.batch->b, .mode = pass.mode, .workspace = pass.workspace};
  args.dresidual_in = dout;
  args.dresidual = grad->residual;
  AddBranch(pass, *grad, &args);
  pass.backend->add_norm().AddNormGrad(*pass.stream, args);
  pass.Done(incoming_.bias);
}

kernels::Dropout Border::MakeDropout(const Pass& pass) const {
  if (!pass.training || !incoming_.dropout.rate.active()) return {};
  return {.rate = incoming_.dropout.rate,
          .key = incoming_.dropout.key,
          .samples = pass.batch->samples,
          .positions = pass.batch->positions};
}

AddNormGradArgs Border::NormGradArgs(const Pass& pass, size_t slot) const {
  CHECK(has_norm());
  const Kept& kept = kept_[slot];
  return {.residual_out = kept.residual,
          .mean = kept.mean,
          .rstd = kept.rstd,
          .gain = gain_,
          .kind = config_.norm,
          .one_plus = config_.norm_one_plus,
          .batch = pass.batch->b,
          .mode = pass.mode,
          .dgain = dgain_,
          .dshift = dshift_,
          .workspace = pass.workspace};
}

void Border::AddBranch(const Pass& pass, const BranchGrad& grad, AddNormGradArgs* args) const {
  args->dropout = MakeDropout(pass);
  // Without dropout both gradients are one buffer, as the op demands.
  args->dbranch = args->dropout.rate.active() ? grad.branch : args->dresidual;
  args->dbias = dbias_;
}

}  // namespace mt::model
