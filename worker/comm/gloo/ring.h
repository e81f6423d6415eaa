// The bulk collectives over a mesh: what they send when, in segments of at most 1 MiB, two in
// flight. Members have compared their calls before (gloo_group.cc). Steps and bytes: README.md.
// After an error outputs are undefined, and nothing writes to them any more.
#pragma once

#include <cstddef>

#include "common/base/clock.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/reduce.h"

namespace mt::comm {

inline constexpr int64_t kSegmentBytes = int64_t{1} << 20;
inline constexpr int64_t kScratchBytes = 4 * kSegmentBytes;

struct Transfer {
  GlooMesh* mesh = nullptr;
  int my_index = 0;
  int num_members = 1;
  base::MonotonicTime deadline;
  std::byte* scratch = nullptr;  // [kScratchBytes]

  int Shift(int by) const { return ((my_index + by) % num_members + num_members) % num_members; }
};

// in [cut.count]; out [cut.CountOf(my_index)] gets this member's shard, reduced; may be in's own
// shard. Not for 16-bit types.
Status RingReduceScatter(const Transfer& transfer, const void* in, void* out, ShardCut cut,
                         ReduceType type);
// The same for 16-bit types: every member gets all terms of its shard and adds them once.
Status DirectReduceScatter(const Transfer& transfer, const void* in, void* out, ShardCut cut,
                           ReduceType type);
// out [cut.count] holds this member's shard; gets all. `element` bytes per element.
Status RingAllGather(const Transfer& transfer, void* out, ShardCut cut, int64_t element);
// Along the ring from the root; data [bytes] in place.
Status ChainBroadcast(const Transfer& transfer, void* data, int64_t bytes, int root);
// in, out [num_members * shard_bytes].
Status PairwiseAllToAll(const Transfer& transfer, const void* in, void* out, int64_t shard_bytes);

}  // namespace mt::comm
