// An entry holds a frame of level 0 with the job that it belongs to; a damaged part is skipped
// eight bytes at a time until an entry parses again.
#include "daemon/telemetry/history_journal.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "daemon/telemetry/history_frame.h"

namespace mt::daemon {
namespace {

// An entry is this header, the job's uid, zeros up to a multiple of 8 bytes, and a frame.
// Little-endian.
struct JournalHeader {
  static constexpr uint32_t kMagic = 0x4A48'544D;  // "MTHJ"
  uint32_t magic = kMagic;
  uint32_t uid_bytes = 0;
  uint64_t uid_sum = 0;  // XXH3-64 of the uid
};
static_assert(sizeof(JournalHeader) == 16);
constexpr size_t kJournalAlign = kHistoryFrameAlign;
constexpr size_t kMaxUidBytes = 256;

size_t JournalAligned(size_t bytes) {
  return (bytes + kJournalAlign - 1) / kJournalAlign * kJournalAlign;
}

struct Entry {
  std::string uid;
  HistoryFrameHeader header;
  std::string_view body;
  size_t bytes = 0;  // size of the whole entry
};

// Parses the entry at the beginning of `bytes`; false where no complete one begins there.
bool ParseJournalEntry(std::string_view bytes, Entry* entry) {
  JournalHeader header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != JournalHeader::kMagic || header.uid_bytes > kMaxUidBytes) return false;
  const size_t frame = sizeof(header) + JournalAligned(header.uid_bytes);
  if (bytes.size() < frame) return false;
  entry->uid = bytes.substr(sizeof(header), header.uid_bytes);
  if (XXH3_64bits(entry->uid.data(), entry->uid.size()) != header.uid_sum) return false;
  const auto parsed = ParseHistoryHeader(bytes.substr(frame));
  const size_t body = frame + sizeof(HistoryFrameHeader);
  if (!parsed.has_value() || bytes.size() < body || bytes.size() - body < parsed->body_bytes) {
    return false;
  }
  entry->header = *parsed;
  entry->body = bytes.substr(body, parsed->body_bytes);
  entry->bytes = body + parsed->body_bytes;
  return true;
}

}  // namespace

Status HistoryJournal::Replay(const Visit& visit) {
  if (!base::Exists(file_.path())) return OkStatus();
  ASSIGN_OR_RETURN(const std::string content, base::ReadFile(file_.path()));
  std::string_view rest = content;
  size_t skipped = 0;
  while (!rest.empty()) {
    Entry entry;
    StatusOr<HistoryTable> rows = base::DataLoss("no entry");
    if (ParseJournalEntry(rest, &entry)) rows = DecodeHistoryBody(entry.header, entry.body);
    if (rows.ok() && rows->level == 0) {
      visit(entry.uid, *rows);
      rest.remove_prefix(entry.bytes);
      continue;
    }
    const size_t step = std::min(kJournalAlign, rest.size());
    skipped += step;
    rest.remove_prefix(step);
  }
  if (skipped != 0) {
    // At the end of the file this is the remainder of an interrupted write, which was never
    // acknowledged.
    log::Warn("history: damaged part of the journal skipped",
              {{"file", file_.path()}, {"bytes", skipped}});
  }
  return OkStatus();
}

void HistoryJournal::Add(std::string_view job_uid, const HistoryTable& rows) {
  CHECK_LE(job_uid.size(), kMaxUidBytes);
  JournalHeader header;
  header.uid_bytes = static_cast<uint32_t>(job_uid.size());
  header.uid_sum = XXH3_64bits(job_uid.data(), job_uid.size());
  for (size_t first = 0; first < rows.num_rows(); first += kHistoryFrameRows) {
    const size_t count = std::min<size_t>(kHistoryFrameRows, rows.num_rows() - first);
    added_.append(reinterpret_cast<const char*>(&header), sizeof(header));
    added_ += job_uid;
    added_.resize(JournalAligned(added_.size()));
    added_ += EncodeHistoryFrame(rows.Slice(first, count));
  }
}

HistoryJournal::HistoryJournal(std::string path) : file_(std::move(path), kJournalAlign) {}

Status HistoryJournal::Write() { return file_.Append(std::exchange(added_, {})); }

Status HistoryJournal::Rewrite() { return file_.Replace(std::exchange(added_, {})); }

}  // namespace mt::daemon
