// The index is rebuilt by walking the headers; bodies are checked only near the end, where an
// interrupted write may lie, and otherwise when they are read.
#include "daemon/telemetry/history_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/log.h"
#include "daemon/telemetry/append_file.h"

namespace mt::daemon {
namespace {

constexpr int64_t kHeaderBytes = sizeof(HistoryFrameHeader);
constexpr int64_t kBlockAlign = kHistoryFrameAlign;
constexpr size_t kScanBytes = 1 << 16;
// The unfinished part of an interrupted write lies within this distance of the end.
constexpr int64_t kCheckedEndBytes = 4 << 20;

StatusOr<std::string> ReadAt(int fd, int64_t offset, size_t bytes, const std::string& path) {
  std::string out(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(fd, out.data() + done, bytes - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError(errno, fmt::format("read {}", path));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return out;
}

}  // namespace

StatusOr<HistoryTable> ReadHistoryFrame(const HistoryFrames& file, const HistoryFrameRef& ref,
                                        std::span<const std::string> names) {
  ASSIGN_OR_RETURN(const std::string body, ReadAt(file.fd->get(), ref.offset + kHeaderBytes,
                                                  ref.header.body_bytes, file.path));
  auto rows = DecodeHistoryBody(ref.header, body, names);
  if (!rows.ok()) return base::Annotate(rows.status(), file.path);
  rows->Truncate(rows->LowerBound(ref.live_below));
  return rows;
}

Status HistoryFile::Load(bool repair) {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return errno == ENOENT ? OkStatus() : base::ErrnoError(errno, fmt::format("open {}", path_));
  }
  fd_ = std::make_shared<base::Fd>(fd);
  ASSIGN_OR_RETURN(const int64_t size, base::FileSize(path_));
  return Scan(size, repair);
}

Status HistoryFile::OpenForWriting() {
  if (writable_) return OkStatus();
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return base::ErrnoError(errno, fmt::format("open {}", path_));
  fd_ = std::make_shared<base::Fd>(fd);
  // The new name must survive a power loss, as the frames do.
  RETURN_IF_ERROR(base::SyncDir(path_.substr(0, path_.rfind('/'))));
  writable_ = true;
  return OkStatus();
}

void HistoryFile::Cut(int64_t step) {
  for (HistoryFrameRef& ref : refs_) ref.live_below = std::min(ref.live_below, step);
  std::erase_if(refs_,
                [](const HistoryFrameRef& ref) { return ref.header.first_step >= ref.live_below; });
}

void HistoryFile::Add(const HistoryFrameHeader& header, int64_t offset) {
  // A later epoch began before steps that exist already: those were rolled back.
  if (header.level == 0 && header.first_step <= LastStep(0)) Cut(header.first_step);
  refs_.push_back({.header = header, .offset = offset});
}

int64_t HistoryFile::FindHeader(int64_t from, int64_t size) const {
  for (int64_t at = from; at + kHeaderBytes <= size;) {
    const auto chunk = ReadAt(fd_->get(), at, kScanBytes, path_);
    if (!chunk.ok() || chunk->size() < static_cast<size_t>(kHeaderBytes)) break;
    const int64_t last = static_cast<int64_t>(chunk->size()) - kHeaderBytes;
    for (int64_t i = 0; i <= last; i += kBlockAlign) {
      if (ParseHistoryHeader(std::string_view(*chunk).substr(static_cast<size_t>(i)))) {
        return at + i;
      }
    }
    at += last / kBlockAlign * kBlockAlign + kBlockAlign;
  }
  return size;
}

Status HistoryFile::Scan(int64_t size, bool repair) {
  int64_t at = 0;
  while (at < size) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadAt(fd_->get(), at, sizeof(HistoryFrameHeader), path_));
    const auto header = ParseHistoryHeader(bytes);
    if (!header.has_value()) {
      const int64_t next = FindHeader(at + kBlockAlign, size);
      log::Warn("history: damaged part skipped",
                {{"file", path_}, {"offset", at}, {"bytes", next - at}});
      at = next;
      continue;
    }
    const int64_t behind = at + kHeaderBytes + static_cast<int64_t>(header->body_bytes);
    if (behind > size) break;  // the write of this frame was not completed
    Add(*header, at);
    at = behind;
  }
  end_ = at;
  DropBadEnd(size, repair);
  end_ = (end_ + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
  return OkStatus();
}

void HistoryFile::DropBadEnd(int64_t size, bool repair) {
  const HistoryFrames file{.fd = fd_, .path = path_, .refs = {}};
  bool at_end = true;
  for (size_t i = refs_.size(); i-- > 0;) {
    if (refs_[i].offset < size - kCheckedEndBytes) break;
    const auto rows = ReadHistoryFrame(file, refs_[i]);
    if (rows.ok()) {
      at_end = false;
      continue;
    }
    log::Warn("history: damaged frame skipped", {{"error", base::Message(rows.status())}});
    if (at_end) end_ = refs_[i].offset;
    refs_.erase(refs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!repair || end_ >= size) return;
  log::Info("history: an unfinished write is cut off",
            {{"file", path_}, {"offset", end_}, {"bytes", size - end_}});
  const Status opened = OpenForWriting();
  if (!opened.ok() || ftruncate(fd_->get(), end_) != 0) {
    log::Warn("history: cannot cut it off", {{"file", path_}});
  }
}

Status HistoryFile::Append(std::span<const HistoryTable> frames) {
  RETURN_IF_ERROR(OpenForWriting());
  std::string bytes;
  std::vector<int64_t> offsets;
  for (const HistoryTable& rows : frames) {
    offsets.push_back(end_ + static_cast<int64_t>(bytes.size()));
    bytes += EncodeHistoryFrame(rows);
  }
  Status status = WriteDurably(fd_->get(), end_, bytes, path_);
  if (!status.ok()) {
    // What was written is overwritten by the next attempt, or cut off at the next start.
    if (ftruncate(fd_->get(), end_) != 0) writable_ = false;
    return status;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto begin = static_cast<size_t>(offsets[i] - end_);
    const auto header = ParseHistoryHeader(std::string_view(bytes).substr(begin));
    if (header) Add(*header, offsets[i]);  // always valid, as it was encoded above
  }
  end_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

HistoryFrames HistoryFile::Frames(int level, int64_t after_step) const {
  HistoryFrames out{.fd = fd_, .path = path_, .refs = {}};
  for (const HistoryFrameRef& ref : refs_) {
    if (static_cast<int>(ref.header.level) == level && ref.header.last_step > after_step) {
      out.refs.push_back(ref);
    }
  }
  return out;
}

int64_t HistoryFile::LastStep(int level) const {
  for (size_t i = refs_.size(); i-- > 0;) {
    const HistoryFrameRef& ref = refs_[i];
    if (static_cast<int>(ref.header.level) != level) continue;
    if (ref.header.last_step < ref.live_below) return ref.header.last_step;
    if (level == 0) return ref.live_below - 1;  // steps have no gaps
    const auto rows = ReadHistoryFrame({.fd = fd_, .path = path_, .refs = {}}, ref);
    if (rows.ok() && !rows->empty()) return rows->steps.back();
  }
  return 0;
}

const HistoryFrameRef* HistoryFile::FirstStepFrame() const {
  for (const HistoryFrameRef& ref : refs_) {
    if (ref.header.level == 0) return &ref;
  }
  return nullptr;
}

const HistoryFrameRef* HistoryFile::LastStepFrame() const {
  for (size_t i = refs_.size(); i-- > 0;) {
    if (refs_[i].header.level == 0) return &refs_[i];
  }
  return nullptr;
}

}  // namespace mt::daemon
