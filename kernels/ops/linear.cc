// Default bodies of the fused entries over the primitives, for backends (or shapes) without a fused
// kernel. The first part of the workspace holds a gated activation's output gradient, the second
// part is the primitive's workspace.
#include "kernels/ops/linear.h"

#include "common/base/math.h"

namespace mt::kernels {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, of the parts of a workspace

LinearForwardArgs Primitive(const LinearForwardActArgs& a) {
  return {.x = a.x,
          .w = a.w,
          .bias = a.bias,
          .y = a.pre,
          .workspace = a.workspace,
          .sm_budget = a.sm_budget};
}

// The gradient of the activation's output: a part of the workspace for a gated activation, whose
// dpre is twice as wide; else dpre's buffer.
Tensor ActOutputGrad(const LinearInputGradActArgs& a) {
  if (!IsGated(a.act)) return a.dpre;
  return {a.workspace.data, a.dy.dtype, {a.dy.shape[0], a.w.shape[1]}};
}

int64_t ActOutputGradBytes(const LinearInputGradActArgs& a) {
  return IsGated(a.act) ? base::RoundUp(ActOutputGrad(a).Bytes(), kAlignment) : 0;
}

// The workspace behind its first `taken` bytes; empty while memory is being planned.
Workspace After(const Workspace& whole, int64_t taken) {
  if (whole.data == nullptr) return {};
  return {static_cast<char*>(whole.data) + taken, whole.bytes - taken};
}

LinearInputGradArgs Primitive(const LinearInputGradActArgs& a) {
  const int64_t taken = ActOutputGradBytes(a);
  return {.dy = a.dy,
          .w = a.w,
          .dx = ActOutputGrad(a),
          .workspace = After(a.workspace, taken),
          .sm_budget = a.sm_budget};
}

}  // namespace

int64_t LinearOps::Plan(const LinearForwardActArgs& args) { return Plan(Primitive(args)); }

int64_t LinearOps::Plan(const LinearInputGradActArgs& args) {
  return ActOutputGradBytes(args) + Plan(Primitive(args));
}

void LinearOps::ForwardAct(Stream& stream, const LinearForwardActArgs& args) const {
  Forward(stream, Primitive(args));
  act_->Act(stream, {.kind = args.act, .pre = args.pre, .y = args.y});
}

void LinearOps::InputGradAct(Stream& stream, const LinearInputGradActArgs& args) const {
  CHECK_GE(args.workspace.bytes, ActOutputGradBytes(args));
  InputGrad(stream, Primitive(args));
  act_->ActGrad(stream,
                {.kind = args.act, .dy = ActOutputGrad(args), .pre = args.pre, .dpre = args.dpre});
  if (args.dbias) vector_->RowSum(stream, args.dpre, args.mode, args.dbias);
}

}  // namespace mt::kernels
