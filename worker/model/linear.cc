// Registration and the five products.
#include "worker/model/linear.h"

#include <utility>

#include "common/base/check.h"

namespace mt::model {

using kernels::Tensor;

Linear::Linear(const GptConfig& config, Args args)
    : dtype_(config.dtype), tokens_(config.tokens()), args_(std::move(args)) {
  CHECK(!args_.parts.empty());
}

void Linear::Register(params::Registry* registry) {
  params::ParamSpec weight = {.shape = {args_.part_outputs, args_.inputs},
                              .stored = {args_.part_outputs, args_.inputs},
                              .region = params::Region::kMatrix,
                              .init = params::InitKind::kNormal,
                              .std = args_.std,
                              .decay = true,
                              .layer = args_.layer};
  for (const std::string& part : args_.parts) {
    weight.name = part + ".weight";
    weight.joined = !weight_ids_.empty();
    weight_ids_.push_back(registry->Add(weight));
  }
  params::ParamSpec bias = {
      .shape = {args_.part_outputs},
      .stored = {args_.part_outputs},
      .region = adds_bias() ? params::Region::kShardedVector : params::Region::kReplicatedVector,
      .init = params::InitKind::kZero,
      .layer = args_.layer};
  for (const std::string& part : args_.parts) {
    bias.name = part + ".bias";
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
  const Tensor x = Placeholder(dtype_, {tokens_, args_.inputs});
  const Tensor y = Placeholder(dtype_, {tokens_, outputs()});
  const Tensor w = Placeholder(dtype_, {outputs(), args_.inputs});
  Tensor bias, dbias;
  if (adds_bias()) {
    bias = Placeholder(dtype_, {outputs()});
    dbias = Placeholder(accumulator, {outputs()});
  }
  const kernels::LinearOps& ops = plan->pass->backend->linear();
  plan->NeedWorkspace(ops.WorkspaceBytes(
      kernels::LinearForwardActArgs{.x = x, .w = w, .bias = bias, .pre = y, .y = y}));
  plan->NeedWorkspace(
      ops.WorkspaceBytes(kernels::LinearForwardArgs{.x = x, .w = w, .bias = bias, .y = y}));
  plan->NeedWorkspace(ops.WorkspaceBytes(kernels::LinearInputGradArgs{.dy = y, .w = w, .dx = x}));
  plan->NeedWorkspace(
      ops.WorkspaceBytes(kernels::LinearInputGradActArgs{.dy = y, .w = w, .pre = x, .dpre = x}));
  plan->NeedWorkspace(ops.WorkspaceBytes(kernels::LinearWeightGradArgs{
      .dy = y, .x = x, .dw = Placeholder(accumulator, w.shape), .dbias = dbias}));
}

void Linear::Forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  pass.backend->linear().Forward(
      *pass.stream, {.x = x, .w = w_, .bias = bias_, .y = y, .workspace = pass.workspace});
}

void Linear::ForwardAct(const Pass& pass, const Tensor& x, const Tensor& pre,
                        const Tensor& y) const {
  pass.backend->linear().ForwardAct(*pass.stream, {.x = x,
                                                   .w = w_,
                                                   .bias = bias_,
                                                   .act = kernels::ActKind::kGelu,
                                                   .pre = pre,
                                                   .y = y,
                                                   .workspace = pass.workspace});
}

void Linear::InputGrad(const Pass& pass, const Tensor& dy, const Tensor& dx) const {
  pass.backend->linear().InputGrad(*pass.stream,
                                   {.dy = dy, .w = w_, .dx = dx, .workspace = pass.workspace});
}

void Linear::InputGradAct(const Pass& pass, const Tensor& dy, const Tensor& pre,
                          const Tensor& dpre) const {
  pass.backend->linear().InputGradAct(*pass.stream, {.dy = dy,
                                                     .w = w_,
                                                     .pre = pre,
                                                     .act = kernels::ActKind::kGelu,
                                                     .dpre = dpre,
                                                     .workspace = pass.workspace});
}

void Linear::WeightGrad(const Pass& pass, const Tensor& dy, const Tensor& x) const {
  pass.backend->linear().WeightGrad(*pass.stream, {.dy = dy,
                                                   .x = x,
                                                   .mode = pass.mode,
                                                   .dw = dw_,
                                                   .dbias = dbias_,
                                                   .workspace = pass.workspace});
  for (const params::ParamId id : weight_ids_) pass.Done(id);
  if (!adds_bias()) return;
  for (const params::ParamId id : bias_ids_) pass.Done(id);
}

params::ParamId Linear::border_bias() const {
  CHECK(!adds_bias() && bias_ids_.size() == 1);
  return bias_ids_.front();
}

}  // namespace mt::model
