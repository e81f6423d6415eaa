// The part of a network that one rank decodes, and the calls by which it meets the ranks that have
// the others: tensor ranks share each matrix, stages follow each other. All of them make the same
// calls of a DecodeModel in the same order, and each of them obtains the logits.
// Legend: t tensor ranks, h hidden, R rows of a call, r of them with logits, v = V' / t rows of the
// padded vocabulary.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/layout/layer_split.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/add_norm.h"
#include "worker/comm/process_group.h"
#include "worker/parallel/tensor_parallel.h"

namespace mt::decode {

// Plain values; pointers outlive whoever is given them.
struct NetworkPart {
  // This rank's chunks in the order of the network; empty: the whole network.
  std::vector<layout::ModelChunk> chunks;
  int stages = 1;
  // The ranks that share this rank's matrices, without sequence parallelism; nullptr: alone.
  parallel::TensorParallel* tensor = nullptr;
  // All ranks that hold the network together, stage by stage: member `stage * t + tensor rank`. Of
  // the device's memory. nullptr with one stage.
  comm::ProcessGroup* ranks = nullptr;
};

// Used by one thread. The first error is kept: later calls do nothing.
class PartExchange {
 public:
  explicit PartExchange(const NetworkPart& part);

  int tensor_ranks() const { return part_.tensor == nullptr ? 1 : part_.tensor->size(); }
  bool alone() const { return tensor_ranks() == 1 && part_.stages == 1; }
  const std::vector<layout::ModelChunk>& chunks() const { return part_.chunks; }

  // `partial` [R, h] summed over the tensor ranks, in place.
  kernels::Partials Sum(kernels::Stream& stream, const kernels::Tensor& partial);
  // The residual [R, h] at the begin of a chunk, from the stage before, and at its end.
  void Receive(kernels::Stream& stream, const layout::ModelChunk& chunk,
               const kernels::Tensor& residual);
  void Send(kernels::Stream& stream, const layout::ModelChunk& chunk,
            const kernels::Tensor& residual);
  // `all` [t r, v] on every rank: the logits [r, v] of each tensor rank of the last stage. `own` is
  // read there alone.
  void ShareLogits(kernels::Stream& stream, kernels::Device& device, const kernels::Tensor& own,
                   const kernels::Tensor& all);
  // OK, or the first error of a call; what the model computed since then is void.
  Status status() const;

 private:
  // The member with this stage's tensor rank on another stage.
  int MemberOf(int stage) const;

  const NetworkPart part_;
  Status status_;
};

// Rows [r, vocab] of the logits [t r, v] of t ranks; all in host memory.
void JoinLogits(const kernels::Tensor& all, const kernels::Tensor& rows);

}  // namespace mt::decode
