// The memory that members of a group over copies share: each has its own and maps the others', laid
// out alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

// Memory of all members; that of the peers is mapped.
struct SharedWindow {
  std::byte* own = nullptr;
  int64_t bytes = 0;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> peers;  // null at this member's index
};

// Elements of a tensor, in memory that is shared: the same place on all members.
struct SharedPart {
  const SharedWindow* window = nullptr;
  int64_t offset = 0;  // bytes
  int64_t bytes = 0;

  std::byte* Own() const { return window->own + offset; }
  std::byte* At(int peer) const {
    return static_cast<std::byte*>(window->peers[static_cast<size_t>(peer)]->data()) + offset;
  }
};

// One thread.
class SharedWindows {
 public:
  // Collective over `host`, a group of the same members; blocks until all have come. Returns why a
  // driver refuses, on whichever member: then nothing is mapped; "" where all is. Errors are the
  // group's, or kFailedPrecondition: a member shares memory of other sizes.
  StatusOr<std::string> Map(ProcessGroup& host, kernels::Stream& stream, kernels::Device& device,
                            const ProcessGroup::SharedMemory& memory);
  void Clear();

  // kFailedPrecondition: they lie in no operands of Map.
  StatusOr<SharedPart> Locate(const void* data, int64_t bytes) const;
  const SharedWindow& scratch() const { return scratch_; }

 private:
  std::vector<SharedWindow> operands_;
  SharedWindow scratch_;
};

}  // namespace mt::comm
