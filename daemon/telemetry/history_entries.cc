// Entries with checksums, read as a whole file: an unreadable part is skipped eight bytes at a time
// until an entry parses again.
#include "daemon/telemetry/history_entries.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <xxhash.h>

#include "common/base/files.h"
#include "common/base/log.h"

namespace mt::daemon {
namespace {

// An entry is this header, a record in protobuf's format, and zeros up to a multiple of 8 bytes.
// Little-endian.
struct EntryHeader {
  uint32_t magic = 0;
  uint32_t bytes = 0;
  uint64_t sum = 0;  // XXH3-64 of the record
};
static_assert(sizeof(EntryHeader) == 16);
constexpr size_t kEntryAlign = 8;
// With more than this unwritten, records are dropped: the disk has refused them for long.
constexpr size_t kHeldBytes = 1 << 20;

size_t EntryAligned(size_t bytes) { return (bytes + kEntryAlign - 1) / kEntryAlign * kEntryAlign; }

// The record of the entry at the beginning of `bytes`; nullopt: none begins there.
std::optional<std::string_view> RecordAt(std::string_view bytes, uint32_t magic) {
  EntryHeader header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != magic || bytes.size() - sizeof(header) < header.bytes) return std::nullopt;
  const std::string_view record = bytes.substr(sizeof(header), header.bytes);
  if (XXH3_64bits(record.data(), record.size()) != header.sum) return std::nullopt;
  return record;
}

}  // namespace

HistoryEntries::HistoryEntries(std::string path, uint32_t magic)
    : file_(std::move(path), kEntryAlign), magic_(magic) {}

void HistoryEntries::AppendRecord(std::string_view record) {
  if (unwritten_.size() > kHeldBytes) return;
  const EntryHeader header{.magic = magic_,
                           .bytes = static_cast<uint32_t>(record.size()),
                           .sum = XXH3_64bits(record.data(), record.size())};
  unwritten_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  unwritten_ += record;
  unwritten_.resize(EntryAligned(unwritten_.size()));
}

Status HistoryEntries::Write() {
  RETURN_IF_ERROR(file_.Append(unwritten_));
  unwritten_.clear();
  return OkStatus();
}

Status ReadHistoryEntries(const std::string& path, uint32_t magic, const std::string& more,
                          const std::function<bool(std::string_view record)>& take) {
  const StatusOr<std::string> read = base::Exists(path) ? base::ReadFile(path) : std::string();
  std::string content = read.ok() ? *read : std::string();
  content.resize(EntryAligned(content.size()));
  content += more;
  size_t skipped = 0;
  for (std::string_view rest = content; !rest.empty();) {
    size_t size = std::min(kEntryAlign, rest.size());
    const auto record = RecordAt(rest, magic);
    if (record && take(*record)) {
      size = std::min(rest.size(), sizeof(EntryHeader) + EntryAligned(record->size()));
    } else {
      skipped += size;
    }
    rest.remove_prefix(size);
  }
  if (skipped != 0) {
    log::Warn("history: damaged part skipped", {{"file", path}, {"bytes", skipped}});
  }
  return read.status();
}

}  // namespace mt::daemon
