// The arithmetic of collectives in one fixed order. Integers wrap; kMax propagates NaN; 16-bit
// floats are accumulated in fp32 and rounded once, to nearest even. Pure functions, thread-safe;
// nothing here communicates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/core/dtype.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

// True for bf16 and f16, whose partial sums would be rounded at every hop of a ring.
constexpr bool IsHalf(kernels::DType dtype) {
  return dtype == kernels::DType::kBf16 || dtype == kernels::DType::kF16;
}

struct ReduceType {
  kernels::DType dtype = kernels::DType::kF32;
  ReduceOp op = ReduceOp::kSum;
};

// into[i] = left[i] (op) right[i], in that order of operands; `into` may be either of them. CHECKs
// that the type has more than 16 bits.
void Combine(void* into, const void* left, const void* right, int64_t count, ReduceType type);

// out[i] = the reduction over members of inputs[member][i], for an element whose shard belongs to
// `owner`. The order is that in which a ring adds: ((x[owner+1] + x[owner+2]) + ...) + x[owner],
// indices modulo the group's size; for 16-bit types it is rank order from 0. `out` may be
// inputs[owner].
void ReduceInOrder(std::span<const void* const> inputs, int owner, void* out, int64_t count,
                   ReduceType type);

// How an all-reduce divides `count` elements into one shard per member: equal shards, the last ones
// shorter or empty. An element is summed in the order of the shard that holds it.
struct ShardCut {
  int64_t count = 0;
  int num_shards = 1;

  int64_t Size() const { return (count + num_shards - 1) / num_shards; }
  int64_t Begin(int shard) const { return std::min(count, Size() * shard); }
  int64_t CountOf(int shard) const { return Begin(shard + 1) - Begin(shard); }
};

// A complete all-reduce over inputs that are all in local memory: every shard in its owner's order.
// `out` may be one of the inputs.
void ReduceAllShards(std::span<const void* const> inputs, void* out, int64_t count,
                     ReduceType type);

}  // namespace mt::comm
