// Sample indices on disk, so that the ranks of a node build an index once and share it in the page
// cache. Files are named by what determines their content, carry a digest and appear by rename:
// concurrent builders are harmless (same bytes, last one wins), a damaged file is rebuilt.
// FORMAT.md has the layout.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/sample_index.h"

namespace mt::data {

// Loads the index from `cache_dir`, or builds it and leaves it there. Empty `cache_dir`, or one
// that cannot be written (logged as a warning): the index stays in memory. Blocking; any thread.
// Errors are those of PlanIndex.
StatusOr<std::unique_ptr<SampleIndex>> LoadOrBuildIndex(const IndexedDataset& data,
                                                        const IndexRequest& request,
                                                        const std::string& cache_dir);

// The file that LoadOrBuildIndex uses for this request.
StatusOr<std::string> IndexCachePath(const IndexedDataset& data, const IndexRequest& request,
                                     const std::string& cache_dir);

}  // namespace mt::data
