// By which of two groups of the same ranks the collectives inside layers go: that of the device's
// library (NCCL), whose kernels take thread blocks from the products they run beside, or the one
// over copies (worker/comm/copies), which takes none, where the ranks' GPUs reach each other. Which
// is faster depends on the size, so the two are raced when a run begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "worker/comm/process_group.h"
#include "worker/memory/memory.h"

namespace mt::parallel {

// Used by one thread. All ranks of the groups make the same calls and obtain the same routes.
class TensorRoutes {
 public:
  // A collective as its group takes it: an all-gather, or a sum of one of the two kinds.
  struct Call {
    comm::CommOp op = comm::CommOp::kAllGather;
    int64_t count = 0;  // elements; per shard where the operation has shards
    kernels::DType dtype = kernels::DType::kF32;
  };
  // What became of a call: microseconds by each group, the mean over ranks and runs.
  struct Choice {
    Call call;
    int64_t bytes = 0;  // of all shards
    double group_us = 0, copies_us = 0;
    bool copies = false;
  };

  // `group` nullptr: a single rank; `copies` nullptr: all goes by `group`. Both outlive this.
  TensorRoutes() = default;
  TensorRoutes(comm::ProcessGroup* group, comm::ProcessGroup* copies)
      : group_(group), copies_(copies) {}

  comm::ProcessGroup* group() const { return group_; }
  bool has_copies() const { return copies_ != nullptr; }
  // The group for a call over `bytes` bytes of all shards. Sizes that were not raced go as the next
  // larger one that was, or the largest; where none was, by copies.
  comm::ProcessGroup* Of(comm::CommOp op, int64_t bytes) const;
  bool IsByCopies(comm::CommOp op, int64_t bytes) const {
    return copies_ != nullptr && Of(op, bytes) == copies_;
  }

  // Whether a group leaves the terms of a sum over so many bytes of input.
  static bool LeavesTerms(const comm::ProcessGroup* group, int64_t bytes) {
    return group->terms() != nullptr && group->terms()->Fit(bytes);
  }

  // Reserves what sums over at most `largest_bytes` bytes of input need; before Share.
  void Plan(memory::MemoryPlan* plan, int64_t largest_bytes);
  // Tells the group over copies of the memory that tensors lie in, which is laid out alike on all
  // ranks. Collective; blocks until all have come. Where a driver refuses on one of them all go
  // by the other group, and a line of the log says why; other errors are the group's.
  Status Share(const memory::Memory& memory);
  // Gives up the copies: all goes by the other group. On all ranks alike.
  void LeaveCopies() { copies_ = nullptr; }

  // Times each call by both groups, in memory of activations that nobody has written yet and that
  // stays zero, and takes the faster; copies where they are slower by less than kMargin, since they
  // leave thread blocks to what runs beside. Sums over more than two ranks are not raced: they go
  // by copies, whose order of terms, unlike NCCL's, depends on nothing but the type. Collective;
  // blocks. Does nothing without copies, or on a device that times no spans.
  Status Race(kernels::Device* device, const std::vector<Call>& calls,
              const memory::Memory& memory);
  // What was raced.
  const std::vector<Choice>& choices() const { return choices_; }
  // The same, a line each: "all_gather of 18874368 bytes: copies (41.2 us, nccl 98.0 us)".
  std::string ToText() const;

 private:
  static constexpr double kMargin = 1.1;

  static std::string Describe(const Choice& choice);
  int size() const { return group_->size(); }
  // The calls that can be raced in `bytes` bytes.
  std::vector<Choice> Racing(const std::vector<Call>& calls, int64_t bytes) const;
  Status Run(comm::ProcessGroup* group, kernels::Stream& stream, const Call& call,
             std::byte* data) const;

  comm::ProcessGroup* group_ = nullptr;
  comm::ProcessGroup* copies_ = nullptr;
  memory::Block scratch_;
  std::vector<Choice> choices_;
};

}  // namespace mt::parallel
