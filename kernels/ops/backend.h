// All op families of one device behind one interface. The engine makes one Backend per rank and
// calls nothing else of a device.
// Threading: ops are thread-safe as long as each call's buffers and stream are the caller's own.
// Families with a Plan (linear, attention) are not const: it registers choices.
// Lifetime: references returned here are valid as long as the Backend.
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

class TuningTable;  // kernels/ops/tuning.h, not included: nvcc does not compile its Status

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  virtual const EmbeddingOps& embedding() const = 0;
  virtual const AddNormOps& add_norm() const = 0;
  virtual LinearOps& linear() = 0;
  virtual const ActOps& act() const = 0;
  virtual const RopeOps& rope() const = 0;
  virtual AttentionOps& attention() = 0;
  virtual const LossOps& loss() const = 0;
  virtual const UpdateOps& update() const = 0;
  virtual const VectorOps& vector() const = 0;
  virtual const RandomOps& random() const = 0;
  // The table of choices that this backend makes by timing; nullptr if it times nothing (the CPU).
  virtual TuningTable* tuning() { return nullptr; }
  // Number of execution plans requested from a library (cuDNN) so far. AttentionOps::Plan requests
  // them; so does a call with a shape that was never planned, which costs time and memory in the
  // middle of a step. Once a run is planned, this number and the number of tuning entries must not
  // grow.
  virtual int64_t NumPlans() const { return 0; }
  // Runs every call planned so far once, on memory of its own that it frees, and waits. A kernel of
  // a library is loaded when it first runs, and on a GPU loading waits until no other kernel runs:
  // a host that gets there beside a collective waits for its peers, which may wait for it. After
  // this no planned call waits for other streams' work. Throws DeviceMemoryError.
  virtual void RunPlanned() {}
  // Names the implementations of the attention calls planned so far, for logs: "forward cuDNN,
  // backward cuDNN"; empty if the backend has only one implementation.
  virtual std::string AttentionKernels() const { return ""; }
};

}  // namespace mt::kernels
