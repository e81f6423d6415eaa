// Asynchronous copies from global to shared memory, which proceed while the thread computes (PTX
// ISA, "cp.async"). A thread's copies form groups, which complete in the order in which they were
// committed.
#pragma once

#include <cstdint>

namespace mt::kernels::cuda {

// Returns the address of `p` in the shared window, as PTX instructions take it.
__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes; both addresses must be 16-byte aligned.
__device__ __forceinline__ void CopyAsync(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to)), "l"(from)
               : "memory");
}

// Ends a group, which consists of this thread's copies since the last one, possibly none.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the latest kPending of this thread's groups are complete and visible to this
// thread.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace mt::kernels::cuda
