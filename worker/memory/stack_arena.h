// A stack allocator within one block: activations of a microbatch slot (released after its
// backward) and scratch (released at the end of an op). The code that takes tensors in a step also
// runs once in measuring mode, so that the plan equals what the step needs.
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"

namespace mt::memory {

// Not thread-safe. Owns no memory.
class StackArena {
 public:
  // An arena that only counts. It returns distinct non-null addresses that must not be
  // dereferenced.
  static StackArena Measuring();
  // An arena over `bytes` at `data`, which must be 256-byte aligned (CHECK) and outlive it.
  StackArena(void* data, int64_t bytes);

  // Returns a 256-byte aligned, uninitialised tensor. CHECKs that it fits: the plan was made by the
  // same calls, so running out is a bug.
  kernels::Tensor Take(kernels::DType dtype, const kernels::Shape& shape);
  kernels::Workspace TakeWorkspace(int64_t bytes);

  // Release(mark) frees everything taken since the matching Mark().
  int64_t Mark() const { return used_; }
  void Release(int64_t mark);

  bool measuring() const { return measuring_; }
  int64_t used_bytes() const { return used_; }
  // The largest use so far, in bytes: the size to reserve.
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

// Scope guard: releases at its end whatever was taken within it.
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
