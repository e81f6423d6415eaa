// What a pipeline schedule drives: the model chunks of one stage, each with its activation slots.
// Implemented over the model by worker/train, and without any maths by the tests.
#pragma once

#include "common/base/status.h"
#include "kernels/core/tensor.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::pipeline {

// Called by the executor's thread only. An error ends the pass on every stage. Tensors keep their
// address and shape from before an executor's first pass until after its last.
class ChunkWork {
 public:
  virtual ~ChunkWork() = default;

  // Called when Input(chunk, slot) holds the microbatch's activation (where action.receives) and
  // Output(chunk, slot) may be written. When it returns, the output is ready to be sent.
  virtual Status Forward(const schedule::Action& action) = 0;
  // Called when OutputGrad(chunk, slot) has come (where action.receives) and InputGrad(chunk, slot)
  // may be written. When it returns, the input's gradient is ready to be sent, and the slot is free
  // for another microbatch.
  virtual Status Backward(const schedule::Action& action) = 0;

  // Whether Forward of the model's last chunk, the only one asked for, may write
  // InputGrad(chunk, slot) already, as a head without layers does, which runs its backward within
  // its forward. Then the slot's last gradient has left before Forward is called.
  virtual bool ForwardWritesInputGrad(int chunk) {
    (void)chunk;
    return true;
  }

  // The tensors at a chunk's borders, of one shape and type on both sides of an edge. Asked for
  // only where the chunk's neighbour exists: Input and InputGrad of all but the model's first
  // chunk, Output and OutputGrad of all but its last. A chunk without layers may return its Input
  // as its Output and its OutputGrad as its InputGrad.
  virtual kernels::Tensor Input(int chunk, int slot) = 0;
  virtual kernels::Tensor Output(int chunk, int slot) = 0;
  virtual kernels::Tensor OutputGrad(int chunk, int slot) = 0;
  virtual kernels::Tensor InputGrad(int chunk, int slot) = 0;
};

}  // namespace mt::pipeline
