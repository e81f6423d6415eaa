// Assembles the operands of kernels/ops/add_norm.h from parameters, dropout sites and kept tensors.
// Operands that a variant does not have stay empty, which selects the op's form.
#include "worker/model/residual_norm.h"

#include <utility>

#include "common/base/check.h"

namespace mt::model {

using kernels::AddNormArgs;
using kernels::AddNormGradArgs;
using kernels::Partials;
using kernels::Tensor;
using params::ParamId;

ResidualNorm::ResidualNorm(const GptConfig& config, std::string norm_name, int layer)
    : config_(config), norm_name_(std::move(norm_name)), layer_(layer) {}

void ResidualNorm::Register(params::Registry* registry) {
  if (!has_norm()) return;
  const kernels::Shape shape = {config_.hidden};
  params::ParamSpec spec = {
      .name = norm_name_ + ".weight",
      .shape = shape,
      .stored = shape,
      .region = params::Region::kReplicatedVector,
      .init = config_.norm_one_plus ? params::InitKind::kZero : params::InitKind::kOne,
      .layer = layer_,
      .partial = config_.shard.cuts_rows()};
  gain_id_ = registry->Add(spec);
  if (!has_shift()) return;
  spec.name = norm_name_ + ".bias";
  spec.init = params::InitKind::kZero;
  shift_id_ = registry->Add(spec);
}

void ResidualNorm::Bind(const params::ParamStore& store) {
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
  if (incoming_.other_bias != ParamId::kNone) {
    other_bias_ = store.Weight(incoming_.other_bias);
    dother_bias_ = store.Grad(incoming_.other_bias);
  }
  if (incoming_.positions != ParamId::kNone) positions_ = store.Weight(incoming_.positions);
}

void ResidualNorm::TakeKept(size_t slot, memory::StackArena* arena, const Tensor& residual) {
  if (kept_.size() <= slot) kept_.resize(slot + 1);
  Kept& kept = kept_[slot];
  kept.residual = residual;
  if (!has_norm()) return;
  const kernels::DType accumulator = kernels::AccumulatorOf(config_.dtype);
  if (has_shift()) kept.mean = arena->Take(accumulator, {config_.rows()});
  kept.rstd = arena->Take(accumulator, {config_.rows()});
}

void ResidualNorm::SetResidual(size_t slot, const Tensor& residual) {
  CHECK(residual.shape == kept_[slot].residual.shape);
  kept_[slot].residual = residual;
}

void ResidualNorm::TakeScratch(ScratchPlan* plan) {
  if (incoming_.other_bias != ParamId::kNone) {
    bias_sum_ = plan->arena->Take(config_.dtype, {config_.hidden});
  }
  const kernels::DType accumulator = kernels::AccumulatorOf(config_.dtype);
  const Tensor rows = Placeholder(config_.dtype, {config_.rows(), config_.hidden});
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
  args.rstd = Placeholder(accumulator, {config_.rows()});
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

void ResidualNorm::Forward(const Pass& pass, size_t slot, const Pending& in,
                           const Tensor& y) const {
  const Kept& kept = kept_[slot];
  AddNormArgs args = {.residual = in.residual,
                      .partials = in.partials,
                      .batch = pass.batch->b,
                      .kind = config_.norm,
                      .eps = config_.norm_eps,
                      .one_plus = config_.norm_one_plus,
                      .gain = gain_,
                      .shift = shift_,
                      .residual_out = kept.residual,
                      .y = y,
                      .mean = kept.mean,
                      .rstd = kept.rstd};
  if (in.partials.count > 0) {
    args.bias = BiasSum(pass);
    args.position_table = positions_;
    args.positions = pass.batch->row_table_positions;
    args.dropout = MakeDropout(pass);
  }
  pass.backend->add_norm().AddNorm(*pass.stream, args);
}

void ResidualNorm::Backward(const Pass& pass, size_t slot, const Partials& dy,
                            BranchGrad* grad) const {
  AddNormGradArgs args = NormGradArgs(pass, slot);
  args.dy = dy;
  args.dresidual_in = grad->residual;
  args.dresidual = grad->residual;
  AddBranch(pass, *grad, &args);
  pass.backend->add_norm().AddNormGrad(*pass.stream, args);
  pass.Done(gain_id_);
  pass.Done(shift_id_);
  FinishBiases(pass);
}

void ResidualNorm::BackwardNorm(const Pass& pass, size_t slot, const Partials& dy,
                                const Tensor& dresidual) const {
  AddNormGradArgs args = NormGradArgs(pass, slot);
  args.dy = dy;
  args.dresidual = dresidual;
  args.dbranch = dresidual;
  pass.backend->add_norm().AddNormGrad(*pass.stream, args);
  pass.Done(gain_id_);
  pass.Done(shift_id_);
}

void ResidualNorm::BackwardBranch(const Pass& pass, const Tensor& dout, BranchGrad* grad) const {
  AddNormGradArgs args = {.batch = pass.batch->b, .mode = pass.mode, .workspace = pass.workspace};
  args.dresidual_in = dout;
  args.dresidual = grad->residual;
  AddBranch(pass, *grad, &args);
  pass.backend->add_norm().AddNormGrad(*pass.stream, args);
  FinishBiases(pass);
}

Tensor ResidualNorm::BiasSum(const Pass& pass) const {
  if (!other_bias_) return bias_;
  pass.backend->device().Copy(*pass.stream, bias_sum_.data, bias_.data, bias_.Bytes());
  pass.backend->vector().AddTo(*pass.stream, bias_sum_, other_bias_);
  return bias_sum_;
}

void ResidualNorm::FinishBiases(const Pass& pass) const {
  if (other_bias_) {
    pass.backend->device().Copy(*pass.stream, dother_bias_.data, dbias_.data, dbias_.Bytes());
  }
  pass.Done(incoming_.bias);
  pass.Done(incoming_.other_bias);
}

kernels::Dropout ResidualNorm::MakeDropout(const Pass& pass) const {
  if (!pass.training || !incoming_.dropout.rate.active()) return {};
  return {.rate = incoming_.dropout.rate,
          .key = incoming_.dropout.key,
          .samples = pass.batch->samples,
          .positions = pass.batch->row_positions};
}

AddNormGradArgs ResidualNorm::NormGradArgs(const Pass& pass, size_t slot) const {
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

void ResidualNorm::AddBranch(const Pass& pass, const BranchGrad& grad,
                             AddNormGradArgs* args) const {
  args->dropout = MakeDropout(pass);
  // Without dropout both gradients are one buffer, as the op requires.
  args->dbranch = args->dropout.rate.active() ? grad.branch : args->dresidual;
  args->dbias = dbias_;
}

}  // namespace mt::model
