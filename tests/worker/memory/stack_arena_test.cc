// The order of takes and releases, and that a measured sequence of calls needs exactly what was
// measured.
#include "worker/memory/stack_arena.h"

#include <vector>

#include <gtest/gtest.h>

namespace mt::memory {
namespace {

// Two tensors kept, two calls with scratch of different sizes.
int64_t RunStep(StackArena* arena) {
  const kernels::Tensor kept = arena->Take(kernels::DType::kF32, {10, 10});
  EXPECT_TRUE(static_cast<bool>(kept));
  const int64_t mark = arena->Mark();
  for (const int64_t n : {100, 300}) {
    const ArenaScope scope(arena);
    const kernels::Tensor a = arena->Take(kernels::DType::kF64, {n});
    const kernels::Workspace w = arena->TakeWorkspace(n);
    EXPECT_GE(static_cast<char*>(w.data) - static_cast<char*>(a.data), n * 8);
    EXPECT_EQ(w.bytes, n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.data) % kAlignBytes, 0U);
  }
  EXPECT_EQ(arena->Mark(), mark);
  arena->Release(0);
  return arena->peak_bytes();
}

TEST(StackArenaTest, MeasuringPlansWhatTheStepTakes) {
  StackArena measuring = StackArena::Measuring();
  const int64_t peak = RunStep(&measuring);
  EXPECT_EQ(peak, 512 + 2560 + 512);  // 400, 2400 and 300 bytes, each rounded up to 256
  std::vector<char> memory(static_cast<size_t>(peak) + kAlignBytes);
  char* base = memory.data();
  while (reinterpret_cast<uintptr_t>(base) % kAlignBytes != 0) ++base;
  StackArena arena(base, peak);
  EXPECT_EQ(RunStep(&arena), peak);
  EXPECT_EQ(RunStep(&arena), peak) << "a second step starts where the first did";
  StackArena too_small(base, peak - kAlignBytes);
  EXPECT_DEATH(RunStep(&too_small), "reserved less than the step takes");
}

TEST(StackArenaTest, ReleasedMemoryIsTakenAgain) {
  alignas(256) char memory[1024];
  StackArena arena(memory, sizeof(memory));
  const kernels::Tensor a = arena.Take(kernels::DType::kU8, {256});
  const int64_t mark = arena.Mark();
  const kernels::Tensor b = arena.Take(kernels::DType::kU8, {256});
  arena.Release(mark);
  EXPECT_EQ(arena.Take(kernels::DType::kU8, {1}).data, b.data);
  EXPECT_NE(a.data, b.data);
  EXPECT_DEATH(arena.Release(2048), "of 512");
}

}  // namespace
}  // namespace mt::memory
