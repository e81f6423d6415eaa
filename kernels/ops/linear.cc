// Default bodies of the fused entries, over the primitives.
#include "kernels/ops/linear.h"

namespace mt::kernels {
namespace {

LinearForwardArgs Primitive(const LinearForwardActArgs& a) {
  return {.x = a.x, .w = a.w, .bias = a.bias, .y = a.pre, .workspace = a.workspace};
}

LinearInputGradArgs Primitive(const LinearInputGradActArgs& a) {
  return {.dy = a.dy, .w = a.w, .dx = a.dpre, .workspace = a.workspace};
}

}  // namespace

int64_t LinearOps::WorkspaceBytes(const LinearForwardActArgs& args) const {
  return WorkspaceBytes(Primitive(args));
}

int64_t LinearOps::WorkspaceBytes(const LinearInputGradActArgs& args) const {
  return WorkspaceBytes(Primitive(args));
}

void LinearOps::ForwardAct(Stream& stream, const LinearForwardActArgs& args) const {
  Forward(stream, Primitive(args));
  act_->Act(stream, {.kind = args.act, .pre = args.pre, .y = args.y});
}

void LinearOps::InputGradAct(Stream& stream, const LinearInputGradActArgs& args) const {
  InputGrad(stream, Primitive(args));
  act_->ActGrad(stream, {.kind = args.act, .dy = args.dpre, .pre = args.pre, .dpre = args.dpre});
}

}  // namespace mt::kernels
