// The image: num_tokens and max_length as i64, spaced_by_8 as i64, the digest's 32 digits, `before`
// as i64.
#include "worker/data/idx_scan.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/log.h"

namespace mt::data {
namespace {

constexpr size_t kScanNumbers = 3;
constexpr size_t kHexBytes = 32;
constexpr size_t kBeforeAt = kScanNumbers * sizeof(int64_t) + kHexBytes;

std::string ScanText(const ScanKey& key) {
  return fmt::format(
      "megatrain idx scan 1\ndevice {}\ninode {}\nbytes {}\nmodified {}\nchanged {}\nbin {}\n"
      "type {}\n",
      key.idx.device, key.idx.inode, key.idx.bytes, key.idx.modified_ns, key.idx.changed_ns,
      key.bin_bytes, key.type);
}

Status WriteScan(const IdxScan& scan, int64_t sequences, ImageSink* sink) {
  CHECK_EQ(std::ssize(scan.before), NumScanBlocks(sequences));
  CHECK_EQ(scan.digest.size(), kHexBytes);
  const std::array<int64_t, kScanNumbers> numbers = {scan.num_tokens, scan.max_length,
                                                     scan.spaced_by_8 ? 1 : 0};
  RETURN_IF_ERROR(sink->Append(numbers.data(), sizeof(numbers)));
  RETURN_IF_ERROR(sink->Append(scan.digest.data(), kHexBytes));
  return sink->Append(scan.before.data(), scan.before.size() * sizeof(int64_t));
}

IdxScan ReadScan(const MappedFile& file, int64_t sequences) {
  const std::byte* const image = file.data() + kCacheHeaderBytes;
  std::array<int64_t, kScanNumbers> numbers{};
  std::memcpy(numbers.data(), image, sizeof(numbers));
  IdxScan scan{.digest = std::string(kHexBytes, '\0'),
               .num_tokens = numbers[0],
               .max_length = static_cast<int32_t>(numbers[1]),
               .spaced_by_8 = numbers[2] != 0,
               .before = std::vector<int64_t>(static_cast<size_t>(NumScanBlocks(sequences)))};
  std::memcpy(scan.digest.data(), image + sizeof(numbers), kHexBytes);
  std::memcpy(scan.before.data(), image + kBeforeAt, scan.before.size() * sizeof(int64_t));
  return scan;
}

}  // namespace

StatusOr<IdxScan> SharedScan(const DataCache& cache, const ScanKey& key,
                             const std::function<StatusOr<IdxScan>()>& scan) {
  if (cache.folder.empty() || !key.idx.AreSettled()) return scan();
  const CacheFileArgs args = {
      .what = "scan of an .idx",
      .magic = "MTISCAN",
      .key = base::Hash128Hex(ScanText(key)),
      .image_bytes = static_cast<int64_t>(kBeforeAt) +
                     NumScanBlocks(key.sequences) * int64_t{sizeof(int64_t)}};
  std::optional<StatusOr<IdxScan>> own;
  const StatusOr<MappedFile> file = LoadOrMakeFile(cache, args, [&](ImageSink* sink) -> Status {
    own = scan();
    RETURN_IF_ERROR(own->status());
    return WriteScan(**own, key.sequences, sink);
  });
  if (own) {
    if (own->ok() && !file.ok()) {
      log::Warn("what an .idx holds cannot be kept in the data cache, every rank reads it through",
                {{"path", CachePath(cache, args.key)}, {"why", base::Message(file.status())}});
    }
    return *std::move(own);
  }
  if (!file.ok()) return scan();  // the folder cannot be written
  IdxScan shared = ReadScan(*file, key.sequences);
  return file->lost() ? scan() : std::move(shared);
}

}  // namespace mt::data
