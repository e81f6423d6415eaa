// The interface that a pipeline schedule drives: the model chunks of one stage with their
// activation slots. Implemented over the model by worker/train, and without computation by tests.
#pragma once

#include "common/base/status.h"
#include "kernels/core/tensor.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// Called by the executor's thread only. An error ends the pass on every stage. Address and shape of
// a tensor must not change between the executor's first pass and its last.
class ChunkWork {
 public:
  virtual ~ChunkWork() = default;

  // Runs one forward. Input(chunk, slot) holds the microbatch's activation (if action.receives),
  // and Output(chunk, slot) may be written. On return the output is ready to be sent.
  virtual Status Forward(const Action& action) = 0;
  // Runs one backward. OutputGrad(chunk, slot) has arrived (if action.receives), and
  // InputGrad(chunk, slot) may be written. On return the input's gradient is ready to be sent, and
  // the slot is free for another microbatch.
  virtual Status Backward(const Action& action) = 0;

  // True if Forward of the model's last chunk, the only one this is asked for, may already write
  // InputGrad(chunk, slot). A head without layers does, because it runs its backward within its
  // forward. The executor then waits until the slot's previous gradient has been sent before it
  // calls Forward.
  virtual bool ForwardWritesInputGrad(int chunk) {
    (void)chunk;
    return true;
  }

  // The tensors at a chunk's boundaries; both sides of an edge agree on shape and type. Only asked
  // for where the chunk has a neighbour: Input and InputGrad of all but the model's first chunk,
  // Output and OutputGrad of all but its last. A chunk without layers may return its Input as its
  // Output and its OutputGrad as its InputGrad.
  virtual kernels::Tensor Input(int chunk, int slot) = 0;
  virtual kernels::Tensor Output(int chunk, int slot) = 0;
  virtual kernels::Tensor OutputGrad(int chunk, int slot) = 0;
  virtual kernels::Tensor InputGrad(int chunk, int slot) = 0;
};

}  // namespace mt::parallel
