// The interface between sub-layers. A branch (embedding, attention, feed-forward) leaves its output
// open: the next ResidualNorm adds residual, partial outputs and bias and applies dropout, in the
// same pass over memory as the norm that follows. Legend: R rows in [s, b] order, h hidden.
#pragma once

#include "kernels/core/tensor.h"
#include "kernels/ops/add_norm.h"
#include "worker/model/dropout_site.h"
#include "worker/model/pass.h"
#include "worker/params/registry.h"

namespace mt::model {

// The parameters and the dropout site needed to close a branch; fixed when the model is built.
struct BranchEnd {
  params::ParamId bias = params::ParamId::kNone;  // [h], bias of the branch's last product
  params::ParamId other_bias =
      params::ParamId::kNone;  // [h], of the other branch of a parallel residual
  params::ParamId positions = params::ParamId::kNone;  // [S, h] position table
  DropoutSite dropout;                                 // rate 0: none
};

// An open branch and what it will be added to.
struct Pending {
  kernels::Tensor residual;    // [R, h]; empty: nothing before this branch
  kernels::Partials partials;  // each [R, h]; count 0: a stage's input, already closed
};

// Gradients of a Pending. Without dropout both are equal, and both tensors are the same buffer.
struct BranchGrad {
  kernels::Tensor residual;  // [R, h]
  kernels::Tensor branch;    // [R, h], gradient of each partial output
  // All rows [T, h] of `branch`, which its writer begins to gather: the gather runs beside what it
  // computes next. Who reads it finishes it first.
  PendingCollective whole;
};

}  // namespace mt::model
