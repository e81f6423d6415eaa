// All memory of one rank: sizes are reserved by kind in a plan before the first step, then
// allocated once; nothing is allocated in a step. Running out is found at planning time and says by
// how much.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/base/status.h"
#include "kernels/core/device.h"

namespace mt::memory {

enum class Kind : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,  // kept from forward to backward
  kWorkspace,    // scratch of a call, scalars, microbatch inputs
  kComm,         // buffers of collectives
  kPinned,       // host memory that the device copies from and to
  kLibraries,    // never planned: what CUDA's libraries were seen to take on the device
};
inline constexpr int kNumKinds = 8;

// "weights", "gradients", "optimizer", "activations", "workspace", "comm", "pinned", "libraries":
// the keys of metrics.
std::string_view Name(Kind kind);

inline constexpr int64_t kAlignBytes = 256;

// Bytes by kind, indexed by Kind.
using BytesByKind = std::array<int64_t, kNumKinds>;
int64_t Total(const BytesByKind& bytes);

// A piece of memory that a plan promised: 256-byte aligned, valid once the plan is allocated.
struct Block {
  Kind kind = Kind::kWorkspace;
  int64_t offset_bytes = 0;
  int64_t bytes = 0;
};

// Adds up what is needed. A value; one thread.
class MemoryPlan {
 public:
  // bytes >= 0; rounded up to kAlignBytes.
  Block Reserve(Kind kind, int64_t bytes);
  const BytesByKind& bytes() const { return bytes_; }

 private:
  BytesByKind bytes_{};
};

// Host memory that this process may still take: MemAvailable of /proc/meminfo, or what is left of
// the cgroup's limit where that is less.
StatusOr<int64_t> AvailableHostBytes();

// Left free on a GPU for what its libraries take after planning: local memory for the stack of the
// first kernel that spills (132 SMs x 2048 threads: 264 MiB at 1 KiB a thread),
// code of kernels that are loaded when first run, granules of 2 MiB per allocation, recordings.
// What was measured: README.md.
inline constexpr int64_t kLibraryReserveBytes = int64_t{512} << 20;

// What a rank may take of a device now: of a GPU what is free less kLibraryReserveBytes, whoever
// uses the rest; else AvailableHostBytes.
StatusOr<int64_t> AvailableBytes(kernels::Device& device);

// The allocation of a plan, one buffer per kind, zeroed. Frees it when destroyed. Reading is
// thread-safe.
class Memory {
 public:
  // kResourceExhausted where the plan exceeds limit_bytes (on a GPU without the pinned kind, which
  // is held against the host's memory) or the device refuses: the message gives bytes by kind, the
  // limit, by how much it is exceeded and what to change. Blocks until the memory is zeroed.
  static StatusOr<std::unique_ptr<Memory>> Allocate(kernels::Device& device, const MemoryPlan& plan,
                                                    int64_t limit_bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // First byte of the block.
  void* Data(const Block& block) const;
  // Bytes allocated, by kind.
  const BytesByKind& Report() const { return bytes_; }

 private:
  Memory() = default;

  BytesByKind bytes_{};
  std::array<std::unique_ptr<kernels::DeviceBuffer>, kNumKinds> buffers_;
};

}  // namespace mt::memory
