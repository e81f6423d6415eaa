// What a member believes a call to be, as it tells its peers: they compare it with their own call
// before they take any data. In host byte order; all ranks run the same program.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/comm/process_group.h"

namespace mt::comm {

struct CallHeader {
  uint64_t sequence = 0;  // number of the collective in the group, or of the message on its edge
  int64_t count = 0;
  int32_t peer = -1;
  CommOp op = CommOp::kBarrier;
  kernels::DType dtype = kernels::DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  uint8_t reserved = 0;

  CallHeader() = default;
  CallHeader(const ProcessGroup::Call& call, uint64_t call_sequence)
      : sequence(call_sequence),
        count(call.count),
        peer(call.peer),
        op(call.op),
        dtype(call.dtype),
        reduce(call.reduce) {}
  ProcessGroup::Call ToCall() const {
    return {.op = op, .count = count, .dtype = dtype, .reduce = reduce, .peer = peer};
  }
};
static_assert(sizeof(CallHeader) == 24);
inline constexpr int64_t kHeaderBytes = sizeof(CallHeader);

// OK if what `peer` ("rank 2 (world 6)") calls as its collective is this member's call, number
// `sequence`; else kFailedPrecondition, with both.
Status CheckAgrees(const CallHeader& theirs, std::string_view peer, const CommCall& mine,
                   uint64_t sequence);

}  // namespace mt::comm
