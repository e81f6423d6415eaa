// An index is a file of the cache whose image is that of sample_index.h.
#include "worker/data/index_cache.h"

#include <cstring>
#include <utility>

#include "common/base/ids.h"
#include "common/base/log.h"

namespace mt::data {
namespace {

std::string RangeText(const SequenceRange& range) {
  std::string text = fmt::format("{} {}", range.begin, range.end);
  if (range.skip_front > 0 || range.skip_back > 0)
    text += fmt::format(" without {} {}", range.skip_front, range.skip_back);
  return text;
}

// Hash of everything that determines the arrays. The number of samples asked is not part of it, so
// runs of different length that build the same index share a file.
std::string CacheKey(const IndexedDataset& data, const IndexRequest& request,
                     const IndexPlan& plan) {
  return base::Hash128Hex(fmt::format(
      "megatrain sample index 1\nidx {}\nrange {}\nseq_length {}\nepochs {}\nseparate {}\n"
      "samples {}\nseed {}\n",
      data.idx_digest(), RangeText(request.range), request.seq_length, plan.epochs,
      plan.separate_last_epoch, plan.samples, request.seed));
}

// What the header has of an index: P, K and the widths of numbers.
std::string FieldsOf(const IndexLayout& layout) {
  std::string fields(18, '\0');
  std::memcpy(&fields[0], &layout.num_positions, sizeof(int64_t));
  std::memcpy(&fields[8], &layout.num_samples, sizeof(int64_t));
  fields[16] = layout.wide_starts ? 8 : 4;
  fields[17] = layout.wide_shuffle ? 8 : 4;
  return fields;
}

}  // namespace

StatusOr<std::string> IndexCachePath(const IndexedDataset& data, const IndexRequest& request,
                                     const std::string& cache_dir) {
  ASSIGN_OR_RETURN(const IndexPlan plan, PlanIndex(request, CountTokens(data, request.range)));
  return CachePath({.folder = cache_dir}, CacheKey(data, request, plan));
}

StatusOr<std::unique_ptr<SampleIndex>> LoadOrBuildIndex(const IndexedDataset& data,
                                                        const IndexRequest& request,
                                                        const DataCache& cache) {
  if (cache.folder.empty()) return BuildIndexInMemory(data, request);
  ASSIGN_OR_RETURN(const IndexPlan plan, PlanIndex(request, CountTokens(data, request.range)));
  const IndexLayout layout = MakeIndexLayout(request, plan);
  const CacheFileArgs args = {.what = kSampleIndex,
                              .magic = "MTINDEX",
                              .key = CacheKey(data, request, plan),
                              .fields = FieldsOf(layout),
                              .image_bytes = layout.total_bytes};
  StatusOr<MappedFile> file = LoadOrMakeFile(cache, args, [&](ImageSink* sink) -> Status {
    RETURN_IF_ERROR(BuildIndex(data, request, plan, sink));
    return data.Intact();
  });
  if (file.ok())
    return std::make_unique<SampleIndex>(plan, layout, std::move(file).value(), kCacheHeaderBytes);
  log::Warn("sample index cache cannot be written, keeping the index in memory",
            {{"path", CachePath(cache, args.key)}, {"why", base::Message(file.status())}});
  return BuildIndexInMemory(data, request);
}

}  // namespace mt::data
