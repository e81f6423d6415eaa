// The header of a collective's opening and of every message: what the sender believes the call to
// be. The receiver compares it with its own call before it accepts bulk data. In host byte order;
// all ranks run the same program.
#pragma once

#include <cstdint>

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
// A message's payload up to this size travels with its header.
inline constexpr int64_t kInlineBytes = 4096;

}  // namespace mt::comm
