// A cache on disk of the choices that backends make by timing, so that the next job with the same
// shapes on the same kind of device starts at once and computes the same bits. One small file per
// choice, named by a hash of its key and written atomically: concurrent writers are harmless, and a
// damaged file is ignored and written anew. Layout: FORMAT.md.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "kernels/ops/tuning.h"

namespace mt::tuning {

// Blocking; any thread.
class TuningCache {
 public:
  // `cache_root` is the worker's cache directory; empty: nothing is found or kept.
  TuningCache(const std::string& cache_root, const std::string& identity);

  // The choice of this key; nullopt where there is no file, or a damaged one, which is logged.
  std::optional<std::string> Find(const std::string& key) const;
  // Writes the choice, replacing an older one. Errors name the path.
  Status Keep(const kernels::TuningEntry& entry) const;
  // DIR/tuning/<hash of the identity>/<hash of the key>.json
  std::string PathOf(const std::string& key) const;

 private:
  const std::string identity_;
  const std::string directory_;  // empty: no cache
};

}  // namespace mt::tuning
