// A mark is a one-thread kernel that increments a counter in device memory and writes number and
// clock into pinned host memory, so that a CUDA graph that contains it needs no patching.
#include <bit>
#include <memory>
#include <utility>

#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/mark_ring.h"

namespace mt::kernels::cuda {
namespace {

// Grid and block of one thread. The clock is read first: the mark is reached at this time, however
// long the access to the counter takes.
__global__ void __launch_bounds__(1)
    MarkKernel(uint64_t* __restrict__ reached, MarkSlot* __restrict__ slots, uint64_t mask) {
  uint64_t nanoseconds = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  const uint64_t n = *reached + 1;
  *reached = n;
  // A single 16-byte store, which any reader sees whole (PTX ISA, "Memory consistency model").
  asm volatile(
      "{\n\t.reg .b128 both;\n\tmov.b128 both, {%1, %2};\n\t"
      "st.relaxed.sys.b128 [%0], both;\n\t}"
      :
      : "l"(slots + (n & mask)), "l"(n), "l"(nanoseconds)
      : "memory");
}

}  // namespace

CudaMarkRing::CudaMarkRing(std::unique_ptr<DeviceBuffer> slots,
                           std::unique_ptr<DeviceBuffer> reached, int64_t capacity)
    : MarkRing(static_cast<MarkSlot*>(slots->data()), capacity),
      slots_(std::move(slots)),
      reached_(std::move(reached)) {}

std::unique_ptr<CudaMarkRing> CudaMarkRing::Create(Device& device, int64_t capacity) {
  const auto slots = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(capacity)));
  auto pinned = device.Allocate(slots * int64_t{sizeof(MarkSlot)}, MemoryKind::kPinnedHost);
  std::uninitialized_fill_n(static_cast<MarkSlot*>(pinned->data()), slots, MarkSlot{});
  auto reached = device.Allocate(sizeof(uint64_t), MemoryKind::kDevice);
  // Cleared before any stream can enqueue a mark.
  const auto stream = device.CreateStream(StreamPriority::kLow);
  device.Zero(*stream, reached->data(), sizeof(uint64_t));
  stream->Synchronize();
  return std::unique_ptr<CudaMarkRing>(
      new CudaMarkRing(std::move(pinned), std::move(reached), slots));
}

void CudaMarkRing::Mark(Stream& stream) {
  MarkKernel<<<1, 1, 0, Raw(stream)>>>(static_cast<uint64_t*>(reached_->data()), slot(0),
                                       static_cast<uint64_t>(capacity() - 1));
  CheckLaunch("Mark");
}

}  // namespace mt::kernels::cuda
