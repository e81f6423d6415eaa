// Algorithms of bulk collectives over a mesh: ring reduce-scatter and all-gather (Patarasuk & Yuan
// 2009), direct reduce-scatter, chain broadcast and pairwise all-to-all, in segments of at most 1
// MiB with two in flight. Members have compared their calls beforehand (gloo_group.cc). Steps and
// bytes: README.md. All calls block. After an error outputs are undefined and nothing writes to
// them any more.
#pragma once

#include <cstddef>

#include "common/base/clock.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/reduce.h"

namespace mt::comm {

inline constexpr int64_t kSegmentBytes = int64_t{1} << 20;
inline constexpr int64_t kScratchBytes = 4 * kSegmentBytes;

// What every algorithm needs to know of the group and the call.
struct Transfer {
  GlooMesh* mesh = nullptr;
  int my_index = 0;
  int num_members = 1;
  base::MonotonicTime deadline;
  std::byte* scratch = nullptr;  // [kScratchBytes]

  // The member `by` places to the right of this one.
  int Shift(int by) const { return ((my_index + by) % num_members + num_members) % num_members; }
};

// in [cut.count]; out [cut.CountOf(my_index)] receives this member's shard, reduced, and may be
// this member's shard of `in`. Not for 16-bit types, whose partial sums would be rounded at every
// hop.
Status RingReduceScatter(const Transfer& transfer, const void* in, void* out, ShardCut cut,
                         ReduceType type);
// The same for 16-bit types: every member receives all terms of its shard and adds them once.
Status DirectReduceScatter(const Transfer& transfer, const void* in, void* out, ShardCut cut,
                           ReduceType type);
// On entry out [cut.count] holds this member's shard, on return all shards. `element`: bytes per
// element.
Status RingAllGather(const Transfer& transfer, void* out, ShardCut cut, int64_t element);
// Passes data [bytes] along the ring, beginning at the root, in place.
Status ChainBroadcast(const Transfer& transfer, void* data, int64_t bytes, int root);
// in, out [num_members * shard_bytes]; one exchange with a pair of peers per step.
Status PairwiseAllToAll(const Transfer& transfer, const void* in, void* out, int64_t shard_bytes);

}  // namespace mt::comm
