// What one pass over an .idx tells: its digest, sums, and where tokens lie, as the image of a file
// of the data cache, so that the ranks of a node take the pass once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/cache_file.h"

namespace mt::data {

inline constexpr int64_t kScanBlock = int64_t{1} << 16;  // sequences

struct IdxScan {
  std::string digest{};  // XXH3-128 of the .idx, 32 hex digits
  int64_t num_tokens = 0;
  int32_t max_length = 0;         // tokens of the longest sequence
  bool spaced_by_8 = true;        // sequences begin where they would with ids of 8 bytes
  std::vector<int64_t> before{};  // tokens before sequences 0, kScanBlock, 2 kScanBlock, ...
  friend bool operator==(const IdxScan&, const IdxScan&) = default;
};

// Entries of `before` for so many sequences.
inline int64_t NumScanBlocks(int64_t sequences) { return sequences / kScanBlock + 1; }

// What is known of the files before they are read through. A file that was changed since has
// another time of change.
struct ScanKey {
  FileFacts idx{};
  int64_t bin_bytes = 0;
  std::string_view type{};
  int64_t sequences = 0;
};

// The scan of another process, or that of `scan`, which is kept for others. Without a folder, for a
// file that was changed so lately that a later change might leave its times as they are, and where
// the cache cannot be written, it is `scan`'s alone, whose errors are returned. Blocks.
StatusOr<IdxScan> SharedScan(const DataCache& cache, const ScanKey& key,
                             const std::function<StatusOr<IdxScan>()>& scan);

}  // namespace mt::data
