// How one sub-layer hands over to the next. A branch (embedding, attention, feed-forward) leaves
// its output open: residual, partial outputs, bias and dropout are put together by the next
// Border, in the same trip through memory as the norm behind it. Legend: R rows in [s, b] order, h
// hidden.
#pragma once

#include "kernels/core/tensor.h"
#include "kernels/ops/add_norm.h"
#include "worker/model/dropout_site.h"
#include "worker/params/registry.h"

namespace mt::model {

// What it takes to close a branch; fixed when the model is built.
struct BranchEnd {
  params::ParamId bias = params::ParamId::kNone;        // [h], of the branch's last product
  params::ParamId other_bias = params::ParamId::kNone;  // [h], where two branches were one
  params::ParamId positions = params::ParamId::kNone;   // [S, h] position table
  DropoutSite dropout;                                  // rate 0: none
};

// An open branch and what it will be added to.
struct Pending {
  kernels::Tensor residual;    // [R, h]; absent: nothing before this branch
  kernels::Partials partials;  // each [R, h]; count 0: a stage's input, already closed
};

// Gradients of a Pending. Without dropout both are the same buffer, since both gradients are the
// same.
struct BranchGrad {
  kernels::Tensor residual;  // [R, h]
  kernels::Tensor branch;    // [R, h], of each partial
};

}  // namespace mt::model
