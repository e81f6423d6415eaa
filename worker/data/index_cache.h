// Sample indices on disk, so that the ranks of a node build an index once and share it through the
// page cache. Files are named after what determines their content, carry a digest and appear by
// rename. One process builds at a time, where the folder can be locked; concurrent builders are
// harmless (the bytes are equal, the last rename wins), and a damaged file is rebuilt. Layout:
// FORMAT.md.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/sample_index.h"

namespace mt::data {

// Loads the index from `cache_dir`, or builds it and stores it there. If `cache_dir` is empty, or
// cannot be written (logged as a warning), the index stays in memory. Blocking; thread-safe. Errors
// are those of PlanIndex and BuildIndex.
StatusOr<std::unique_ptr<SampleIndex>> LoadOrBuildIndex(const IndexedDataset& data,
                                                        const IndexRequest& request,
                                                        const std::string& cache_dir);

// Path of the file that LoadOrBuildIndex uses for this request. Errors are those of PlanIndex.
StatusOr<std::string> IndexCachePath(const IndexedDataset& data, const IndexRequest& request,
                                     const std::string& cache_dir);

}  // namespace mt::data
