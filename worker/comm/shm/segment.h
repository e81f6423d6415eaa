// The memory that the members of one group share: a memory file (memfd_create(2)) without a name in
// any file system. It needs no room in /dev/shm, and nothing is left of it when the last member has
// ended, however that ends. Members open it through /proc while its maker waits for them.
//
// Each member holds a lock on one byte of the file (F_OFD_SETLK), its seat. The kernel gives the
// lock up when the member's process ends, not when it is stopped, in whatever container it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/comm/shm/layout.h"

namespace mt::comm {

// Destruction unmaps and gives the seat up. IsSeated and the mapped blocks may be used by any
// thread, all else by one at a time.
class ShmSegment {
 public:
  // Makes a segment of zeros. kResourceExhausted and others: the system refuses it.
  static StatusOr<std::unique_ptr<ShmSegment>> Make(int num_members);
  // Opens another member's segment by the path of its descriptor in /proc. kFailedPrecondition if
  // what is there is not the segment with this nonce.
  static StatusOr<std::unique_ptr<ShmSegment>> Open(const std::string& path,
                                                    const std::string& nonce, int num_members);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  int fd() const { return fd_.get(); }
  std::string Nonce() const;

  // Takes this member's seat, for as long as the object lives, and the memory of its slots: what is
  // missing is missed here, not in the middle of a call. kFailedPrecondition: the seat is taken, or
  // the kernel has no such locks; kResourceExhausted and others: no memory.
  Status TakeSeat(int index);
  // Whether another member's seat is taken: false once its process has ended.
  bool IsSeated(int index) const;

  MemberBlock& member(int index) const;
  EdgeRing& edge(int from, int to, int number) const;
  // [kSlotBytes]
  std::byte* slot(int member, int64_t parity) const;
  // A member's arena, of which at least the first `bytes` are mapped. The pointer is valid until
  // the next call for the same member. kResourceExhausted: no addresses are left.
  StatusOr<std::byte*> Arena(int member, int64_t bytes);

 private:
  struct Mapping {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };

  ShmSegment(base::Fd fd, int num_members);
  StatusOr<Mapping> Map(int64_t offset, int64_t bytes) const;
  static void Unmap(Mapping* mapping);
  SegmentHeader& header() const;

  const base::Fd fd_;
  const SegmentLayout layout_;
  Mapping base_;                 // all that lies before the arenas
  std::vector<Mapping> arenas_;  // [member], as far as used
};

}  // namespace mt::comm
