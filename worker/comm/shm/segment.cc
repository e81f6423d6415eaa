// Opening another process's descriptor through /proc gives an open file of one's own, which locks
// by open file need.
#include "worker/comm/shm/segment.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/base/ids.h"

namespace mt::comm {
namespace {

constexpr char kMemoryName[] = "megatrain-comm";
// What the kernel shows as the target of a memory file's link in /proc, before " (deleted)".
constexpr std::string_view kMemoryLink = "/memfd:megatrain-comm";
// An arena is mapped in at least this much: addresses, not memory.
constexpr int64_t kFirstArenaBytes = 16 << 20;

// A file beyond the limit would end the process with SIGXFSZ.
Status CheckFileSizeLimit(int64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return base::ErrnoError(errno, "getrlimit");
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= static_cast<rlim_t>(bytes)) {
    return OkStatus();
  }
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "the process may not make files above {} bytes (ulimit -f): lift the limit",
                     limit.rlim_cur);
}

// Arenas are mapped as they are needed, in the middle of training: too late to find a limit.
Status CheckAddressLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0) return base::ErrnoError(errno, "getrlimit");
  if (limit.rlim_cur == RLIM_INFINITY) return OkStatus();
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "the process may use {} bytes of addresses (ulimit -v): lift the limit",
                     limit.rlim_cur);
}

struct flock SeatLock(int index) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  return lock;
}

}  // namespace

ShmSegment::ShmSegment(base::Fd fd, int num_members)
    : fd_(std::move(fd)),
      layout_{.num_members = num_members},
      arenas_(static_cast<size_t>(num_members)) {}

ShmSegment::~ShmSegment() {
  Unmap(&base_);
  for (Mapping& arena : arenas_) Unmap(&arena);
}

StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Make(int num_members) {
  base::Fd fd(::memfd_create(kMemoryName, MFD_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "memfd_create");
  std::unique_ptr<ShmSegment> segment(new ShmSegment(std::move(fd), num_members));
  const int64_t total = segment->layout_.Total();
  RETURN_IF_ERROR(CheckFileSizeLimit(total));
  if (::ftruncate(segment->fd(), total) != 0) {
    return base::ErrnoError(errno, "sizing a memory file");
  }
  ASSIGN_OR_RETURN(segment->base_, segment->Map(0, segment->layout_.Arenas()));
  SegmentHeader& header = segment->header();
  header.magic = kSegmentMagic;
  header.num_members = num_members;
  const std::string nonce = base::RandomHex(static_cast<int>(header.nonce.size() / 2));
  std::copy(nonce.begin(), nonce.end(), header.nonce.begin());
  return segment;
}

StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Open(const std::string& path,
                                                       const std::string& nonce, int num_members) {
  // Looked at before it is opened: to open somebody's pipe or terminal may have effects.
  std::array<char, 64> link{};
  const ssize_t length = ::readlink(path.c_str(), link.data(), link.size());
  if (length < 0) return base::ErrnoError(errno, path);
  if (!std::string_view(link.data(), static_cast<size_t>(length)).starts_with(kMemoryLink)) {
    return base::FailedPrecondition("{} is not a group's shared memory", path);
  }
  base::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, path);
  std::unique_ptr<ShmSegment> segment(new ShmSegment(std::move(fd), num_members));
  struct stat status {};
  if (::fstat(segment->fd(), &status) != 0) return base::ErrnoError(errno, path);
  if (status.st_size != segment->layout_.Total()) {
    return base::FailedPrecondition("{} is the shared memory of another group", path);
  }
  ASSIGN_OR_RETURN(segment->base_, segment->Map(0, segment->layout_.Arenas()));
  const SegmentHeader& header = segment->header();
  if (header.magic != kSegmentMagic || header.num_members != num_members ||
      segment->Nonce() != nonce) {
    return base::FailedPrecondition("{} is the shared memory of another group", path);
  }
  return segment;
}

std::string ShmSegment::Nonce() const { return {header().nonce.data(), header().nonce.size()}; }

Status ShmSegment::TakeSeat(int index) {
  RETURN_IF_ERROR(CheckAddressLimit());
  struct flock lock = SeatLock(index);
  if (::fcntl(fd(), F_OFD_SETLK, &lock) != 0) return base::ErrnoError(errno, "locking a seat");
  if (::fallocate(fd(), 0, layout_.Slot(index, 0), 2 * kSlotBytes) != 0)
    return base::ErrnoError(errno, "taking memory for what is shared");
  return OkStatus();
}

bool ShmSegment::IsSeated(int index) const {
  struct flock lock = SeatLock(index);
  // Where the question fails, the answer that ends nothing.
  return ::fcntl(fd(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

StatusOr<ShmSegment::Mapping> ShmSegment::Map(int64_t offset, int64_t bytes) const {
  void* data =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd(), offset);
  if (data == MAP_FAILED) {
    return base::Error(absl::StatusCode::kResourceExhausted,
                       "mapping {} bytes of shared memory: {}", bytes, std::strerror(errno));
  }
  // A core file would hold the whole range; where the kernel refuses, it does.
  static_cast<void>(::madvise(data, static_cast<size_t>(bytes), MADV_DONTDUMP));
  return Mapping{.data = static_cast<std::byte*>(data), .bytes = bytes};
}

void ShmSegment::Unmap(Mapping* mapping) {
  if (mapping->data != nullptr) ::munmap(mapping->data, static_cast<size_t>(mapping->bytes));
  *mapping = {};
}

StatusOr<std::byte*> ShmSegment::Arena(int member, int64_t bytes) {
  Mapping& arena = arenas_[static_cast<size_t>(member)];
  if (bytes <= arena.bytes) return arena.data;
  if (bytes > kArenaBytes) {
    return base::Error(absl::StatusCode::kResourceExhausted,
                       "{} bytes of unread messages; at most {}", bytes, kArenaBytes);
  }
  int64_t wanted = std::max(kFirstArenaBytes, arena.bytes);
  while (wanted < bytes) wanted *= 2;
  Unmap(&arena);
  ASSIGN_OR_RETURN(arena, Map(layout_.Arena(member), wanted));
  return arena.data;
}

SegmentHeader& ShmSegment::header() const { return *reinterpret_cast<SegmentHeader*>(base_.data); }

MemberBlock& ShmSegment::member(int index) const {
  return *reinterpret_cast<MemberBlock*>(base_.data + layout_.Member(index));
}

EdgeRing& ShmSegment::edge(int from, int to, int number) const {
  return *reinterpret_cast<EdgeRing*>(base_.data + layout_.Edge(from, to, number));
}

std::byte* ShmSegment::slot(int member, int64_t parity) const {
  return base_.data + layout_.Slot(member, parity);
}

}  // namespace mt::comm
