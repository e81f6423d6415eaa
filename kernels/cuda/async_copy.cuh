// Copies from global to shared memory that go on while the thread computes (PTX ISA, "cp.async").
// A thread's copies make groups, which end in the order in which they began.
#pragma once

#include <cstdint>

namespace mt::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes, both sides aligned.
__device__ __forceinline__ void CopyAsync(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to)), "l"(from)
               : "memory");
}

// Ends a group: this thread's copies since the last one, possibly none.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until all but the latest kPending of this thread's groups are there, for this thread.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace mt::kernels::cuda
