// Files of the data cache: what the ranks of a node would each work out by themselves is made by
// one of them, and the others map it. Files are named after what determines their content, carry a
// digest and their maker's name, and appear by rename. One process makes one at a time, where the
// folder can be locked; makers at the same time are harmless (the bytes are equal, the last rename
// wins), and a damaged file is made anew. Layout: FORMAT.md. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/mapped_file.h"

namespace mt::data {

// Where files are kept; an empty folder: nowhere.
struct DataCache {
  std::string folder{};
  std::string owner{};  // whom new files are named after: "namespace/job"
};

// Receives an image from front to back. An error ends its making and is returned.
class ImageSink {
 public:
  virtual ~ImageSink() = default;
  virtual Status Append(const void* data, size_t bytes) = 0;
};

inline constexpr size_t kCacheHeaderBytes = 128;  // an image begins behind them in its file

inline constexpr std::string_view kSampleIndex = "sample index";

struct CacheFileArgs {
  std::string_view what{};   // kSampleIndex or another kind, for the log
  std::string_view magic{};  // of the kind, 7 bytes
  std::string key{};         // 32 hex digits
  std::string fields{};      // of the kind, at most 24 bytes
  int64_t image_bytes = 0;
};

std::string CachePath(const DataCache& cache, const std::string& key);

// Maps the file, whose image the caller need not check, or makes it by `write`. Blocks, also while
// another process makes one. Errors are those of `write` and of the disk; then the caller has to do
// without. `cache` has a folder.
StatusOr<MappedFile> LoadOrMakeFile(const DataCache& cache, const CacheFileArgs& args,
                                    const std::function<Status(ImageSink*)>& write);

}  // namespace mt::data
