// What rank 0 does of a save when all ranks have written: it reads their manifests back from disk,
// sees that they are the ones that were written and that together they hold each tensor once, and
// names them in the checkpoint's manifest. Ranks announce a few bytes each; no rank's slices are
// ever held by another, and rank 0 keeps of them no more than their boxes. Blocking.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// What a rank announces of its manifest.
struct RankRecord {
  int64_t bytes = 0;  // 0: it has no slices, and has written nothing
  base::Hash128Value digest{};
};
std::string ToText(const RankRecord& record);

// Fills `tensors` and `ranks` of *manifest, whose block_bytes is that of the digests, from the
// files in `folder` and the ranks' records, by rank. kDataLoss: a file that is not the one that its
// rank has written, or slices that do not cover a tensor once; kInternal: ranks that disagree on a
// tensor; else I/O errors.
Status CollectRanks(const std::string& folder, const std::vector<std::string>& records,
                    Manifest* manifest);

}  // namespace mt::checkpoint
