// Sample indices in the data cache (cache_file.h), so that the ranks of a node build an index once
// and share it through the page cache.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/data/cache_file.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/sample_index.h"

namespace mt::data {

// Loads the index from the cache, or builds it and stores it there. If the cache has no folder, or
// cannot be written (logged as a warning), the index stays in memory. Blocking; thread-safe. Errors
// are those of PlanIndex and BuildIndex.
StatusOr<std::unique_ptr<SampleIndex>> LoadOrBuildIndex(const IndexedDataset& data,
                                                        const IndexRequest& request,
                                                        const DataCache& cache);

// Path of the file that LoadOrBuildIndex uses for this request. Errors are those of PlanIndex.
StatusOr<std::string> IndexCachePath(const IndexedDataset& data, const IndexRequest& request,
                                     const std::string& cache_dir);

}  // namespace mt::data
