// All op families of one device. A Backend is made once per rank; its ops are stateless and
// thread-safe as long as each call's buffers are the caller's own.
#pragma once

#include <memory>
#include <string>

#include "kernels/core/device.h"
#include "kernels/ops/act.h"
#include "kernels/ops/add_norm.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/update.h"
#include "kernels/ops/vector.h"

namespace mt::kernels {

class TuningTable;  // kernels/ops/tuning.h; nvcc does not take its Status

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  virtual const EmbeddingOps& embedding() const = 0;
  virtual const AddNormOps& add_norm() const = 0;
  virtual const LinearOps& linear() const = 0;
  virtual const ActOps& act() const = 0;
  virtual const RopeOps& rope() const = 0;
  virtual const AttentionOps& attention() const = 0;
  virtual const LossOps& loss() const = 0;
  virtual const UpdateOps& update() const = 0;
  virtual const VectorOps& vector() const = 0;
  virtual const RandomOps& random() const = 0;
  // What this backend chooses by timing; nullptr where it times nothing (the CPU).
  virtual TuningTable* tuning() { return nullptr; }
  // Execution plans that a library was asked for so far. WorkspaceBytes asks; a call whose shape
  // nobody planned does too, and takes time and memory for it: once a run is planned, this number
  // and that of the table's entries stand still.
  virtual int64_t NumPlans() const { return 0; }
  // Whose kernels compute the attention that was planned so far (WorkspaceBytes), for logs:
  // "forward cuDNN, backward cuDNN"; empty where there is only one kind.
  virtual std::string AttentionKernels() const { return ""; }
};

}  // namespace mt::kernels
