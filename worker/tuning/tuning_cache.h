// Choices that backends made by timing, on disk, so that the next job with the same shapes on the
// same kind of device starts at once and computes the same bits. One small file per choice, named
// by what determines it and written atomically: concurrent writers are harmless, a damaged file is
// ignored and written anew. FORMAT.md has the layout.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/tuning.h"

namespace mt::tuning {

// Blocking; any thread.
class TuningCache {
 public:
  // `cache_root` is the worker's; empty: nothing is found or kept.
  TuningCache(const std::string& cache_root, const std::string& identity);

  // nullopt where there is no such file. A damaged one is logged as a warning and not used.
  std::optional<std::string> Find(const std::string& key) const;
  // Errors name the path.
  Status Keep(const kernels::TuningEntry& entry) const;
  // DIR/tuning/<hash of the identity>/<hash of the key>.json
  std::string PathOf(const std::string& key) const;

 private:
  const std::string identity_;
  const std::string directory_;  // empty: no cache
};

}  // namespace mt::tuning
