// The first bytes of a collective's opening and of every message: what its sender believes the call
// to be, compared by the receiver before any bulk data is accepted. Between equal programs only, in
// host byte order.
#pragma once

#include <cstdint>

#include "worker/comm/process_group.h"

namespace mt::comm {

struct CallHeader {
  uint64_t sequence = 0;  // of the group's collectives, or of the edge's messages
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
// Payloads up to here travel with the header.
inline constexpr int64_t kInlineBytes = 4096;

}  // namespace mt::comm
