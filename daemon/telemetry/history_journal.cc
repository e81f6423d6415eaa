#include "daemon/telemetry/history_journal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "daemon/telemetry/history_frame.h"

namespace mt::daemon {
namespace {

// An entry: this header, the job's uid, zeros to a multiple of 8, a frame. Little-endian.
struct JournalHeader {
  static constexpr uint32_t kMagic = 0x4A48'544D;  // "MTHJ"
  uint32_t magic = kMagic;
  uint32_t uid_bytes = 0;
  uint64_t uid_sum = 0;  // xxh3 of the uid
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
  size_t bytes = 0;  // of the whole entry
};

// False: no whole entry begins here.
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
  if (!base::Exists(path_)) return OkStatus();
  ASSIGN_OR_RETURN(const std::string content, base::ReadFile(path_));
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
    // At the end it is what a kill left of a write that nobody was told of.
    log::Warn("history: damaged part of the journal skipped",
              {{"file", path_}, {"bytes", skipped}});
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

Status HistoryJournal::Write() {
  const std::string bytes = std::exchange(added_, {});
  if (!fd_) {
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) return base::ErrnoError(errno, fmt::format("open {}", path_));
    fd_.Reset(fd);
    RETURN_IF_ERROR(base::SyncDir(path_.substr(0, path_.rfind('/'))));
    ASSIGN_OR_RETURN(const int64_t size, base::FileSize(path_));
    end_ = static_cast<int64_t>(JournalAligned(static_cast<size_t>(size)));
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = pwrite(fd_.get(), bytes.data() + done, bytes.size() - done,
                               end_ + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return base::ErrnoError(errno, fmt::format("write {}", path_));
    done += static_cast<size_t>(put);
  }
  if (fdatasync(fd_.get()) != 0) return base::ErrnoError(errno, fmt::format("sync {}", path_));
  end_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

Status HistoryJournal::Rewrite() {
  const std::string bytes = std::exchange(added_, {});
  RETURN_IF_ERROR(base::WriteFileAtomic(path_, bytes));
  const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  fd_.Reset(fd);  // where it failed the next Write opens it
  end_ = static_cast<int64_t>(bytes.size());
  return OkStatus();
}

}  // namespace mt::daemon
