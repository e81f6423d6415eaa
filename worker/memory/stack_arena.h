// Memory taken and released in stack order within a block: activations of a microbatch slot
// (released after its backward) and scratch (released at the end of a call). The same code that
// takes tensors in a step runs once in measuring mode, so that the plan is what the step needs.
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"

namespace mt::memory {

// One thread at a time. Owns nothing.
class StackArena {
 public:
  // Measuring: hands out addresses that must not be read or written, and counts.
  static StackArena Measuring();
  // Over memory of `bytes`, 256-byte aligned.
  StackArena(void* data, int64_t bytes);

  // A tensor of this shape, 256-byte aligned, not cleared. CHECKs that it fits: the plan was made
  // by the same calls, so running out is a bug.
  kernels::Tensor Take(kernels::DType dtype, const kernels::Shape& shape);
  kernels::Workspace TakeWorkspace(int64_t bytes);

  // Everything taken after Mark() is released by Release(mark).
  int64_t Mark() const { return used_; }
  void Release(int64_t mark);

  bool measuring() const { return measuring_; }
  int64_t used_bytes() const { return used_; }
  // Largest use so far: what to reserve.
  int64_t peak_bytes() const { return peak_; }

 private:
  StackArena() = default;
  void* TakeBytes(int64_t bytes);

  bool measuring_ = false;
  char* data_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

// Releases at the end of a scope what was taken in it.
class ArenaScope {
 public:
  explicit ArenaScope(StackArena* arena) : arena_(arena), mark_(arena->Mark()) {}
  ~ArenaScope() { arena_->Release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  StackArena* arena_;
  int64_t mark_;
};

}  // namespace mt::memory
