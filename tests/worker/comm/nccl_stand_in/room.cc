// Others reach the memory file through /proc, by the process and descriptor that the id holds.
#include "tests/worker/comm/nccl_stand_in/room.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace mt::comm::stand_in {

NcclResult MakeRoom(NcclUniqueId* id) {
  // Stays open until the process ends, as NCCL's root of a communicator listens.
  const int memory = memfd_create("nccl stand-in", MFD_CLOEXEC);
  if (memory < 0) return NcclResult::kSystemError;
  if (ftruncate(memory, sizeof(Room)) != 0) return NcclResult::kSystemError;
  id->bytes.fill(0);
  std::snprintf(id->bytes.data(), id->bytes.size(), "/proc/%d/fd/%d", getpid(), memory);
  return NcclResult::kSuccess;
}

bool RoomMapping::Open(const NcclUniqueId& id) {
  const int memory = open(id.bytes.data(), O_RDWR | O_CLOEXEC);
  if (memory < 0) return false;
  void* const at = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  close(memory);
  if (at == MAP_FAILED) return false;  // NOLINT(performance-no-int-to-ptr): the C library's macro
  room_ = static_cast<Room*>(at);
  return true;
}

RoomMapping::~RoomMapping() {
  if (room_ != nullptr) munmap(room_, sizeof(Room));
}

}  // namespace mt::comm::stand_in
