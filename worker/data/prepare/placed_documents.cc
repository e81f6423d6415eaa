// A document is found from the 64th before it: one read of at most 256 bytes of lengths.
#include "worker/data/prepare/placed_documents.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace mt::data {
namespace {

constexpr int64_t kStride = 64;
constexpr int64_t kPieceBytes = int64_t{4} << 20;

StatusOr<base::Fd> OpenFile(const std::string& path) {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

int64_t LengthAt(std::string_view lengths, int64_t index) {
  int32_t value = 0;
  std::memcpy(&value, lengths.data() + index * 4, sizeof(value));
  return value;
}

}  // namespace

StatusOr<PlacedDocuments> PlacedDocuments::Open(const std::string& bin, const std::string& lengths,
                                                int64_t documents, int64_t token_bytes) {
  PlacedDocuments out;
  out.bin_path_ = bin;
  out.lengths_path_ = lengths;
  out.documents_ = documents;
  out.token_bytes_ = token_bytes;
  ASSIGN_OR_RETURN(out.bin_, OpenFile(bin));
  ASSIGN_OR_RETURN(out.lengths_, OpenFile(lengths));
  constexpr int64_t kWindow = kStride * 1024;
  int64_t tokens = 0;
  for (int64_t first = 0; first < documents; first += kWindow) {
    const int64_t count = std::min(kWindow, documents - first);
    RETURN_IF_ERROR(out.ReadAt(out.lengths_, lengths, first * 4, static_cast<size_t>(count * 4)));
    for (int64_t i = 0; i < count; ++i) {
      if (i % kStride == 0) out.firsts_.push_back(tokens);
      tokens += LengthAt(out.buffer_, i);
    }
  }
  return out;
}

Status PlacedDocuments::ReadAt(const base::Fd& fd, const std::string& path, int64_t offset,
                               size_t bytes) {
  buffer_.resize(bytes);
  for (size_t have = 0; have < bytes;) {
    const ssize_t n =
        ::pread(fd.get(), buffer_.data() + have, bytes - have, offset + static_cast<int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::ErrnoError(errno, fmt::format("read {} at byte {}", path, offset));
    if (n == 0) return base::DataLoss("{}: ends before byte {}", path, offset);
    have += static_cast<size_t>(n);
  }
  return OkStatus();
}

StatusOr<int64_t> PlacedDocuments::Read(int64_t document,
                                        const std::function<Status(std::string_view)>& take) {
  const int64_t stride = document / kStride;
  const int64_t within = document % kStride;
  RETURN_IF_ERROR(
      ReadAt(lengths_, lengths_path_, stride * kStride * 4, static_cast<size_t>((within + 1) * 4)));
  int64_t first = firsts_[static_cast<size_t>(stride)];
  for (int64_t i = 0; i < within; ++i) first += LengthAt(buffer_, i);
  const int64_t tokens = LengthAt(buffer_, within);
  int64_t at = first * token_bytes_;
  for (int64_t left = tokens * token_bytes_; left > 0;) {
    const int64_t piece = std::min(left, kPieceBytes);
    RETURN_IF_ERROR(ReadAt(bin_, bin_path_, at, static_cast<size_t>(piece)));
    RETURN_IF_ERROR(take(buffer_));
    at += piece;
    left -= piece;
  }
  return tokens;
}

}  // namespace mt::data
