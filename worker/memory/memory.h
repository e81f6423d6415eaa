// All memory of one rank. Parts of the engine reserve bytes by kind in a plan before the first
// step; the plan is then allocated once, and a step allocates nothing. Running out of memory is
// therefore found at planning time, and the error says by how much.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/base/status.h"
#include "kernels/core/device.h"

namespace mt::memory {

// What memory is used for; metrics and error messages report bytes by kind.
enum class Kind : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,  // saved in forward for backward
  kWorkspace,    // scratch of an op, scalars, microbatch inputs
  kComm,         // buffers for communication, and what communicators took
  kPinned,       // page-locked host memory for asynchronous copies
  kLibraries,    // measured, never planned: taken by CUDA and its libraries
};
inline constexpr int kNumKinds = 8;

// The kind's key in metrics: "weights", "gradients", "optimizer", "activations", "workspace",
// "comm", "pinned" or "libraries".
std::string_view Name(Kind kind);

// Alignment of every Block.
inline constexpr int64_t kAlignBytes = 256;

// Bytes by kind, indexed by Kind.
using BytesByKind = std::array<int64_t, kNumKinds>;
int64_t Total(const BytesByKind& bytes);

// A handle to a piece of planned memory, 256-byte aligned. Memory::Data turns it into an address
// once the plan is allocated.
struct Block {
  Kind kind = Kind::kWorkspace;
  int64_t offset_bytes = 0;
  int64_t bytes = 0;
};

// Adds up the bytes that a rank needs. A value type; not thread-safe.
class MemoryPlan {
 public:
  // Reserves `bytes` (>= 0, CHECK), rounded up to kAlignBytes.
  Block Reserve(Kind kind, int64_t bytes);
  // Counts what others hold of the device for this rank when the plan is allocated (communicators):
  // reported and named in errors, but not allocated. `bytes` >= 0 (CHECK).
  void CountTaken(Kind kind, int64_t bytes);
  // Peers write this rank's memory, or it writes theirs: what they may (weights, gradients,
  // activations, workspace, comm) is then allocated so that the device can share it.
  void ShareWithPeers() { shared_ = true; }
  // How memory of this kind is allocated.
  kernels::MemoryKind KindOf(Kind kind) const;
  const BytesByKind& bytes() const { return bytes_; }
  // The same as `device` allocates them: shared memory comes in pieces of megabytes.
  BytesByKind BytesTaken(const kernels::Device& device) const;
  const BytesByKind& taken() const { return taken_; }

 private:
  BytesByKind bytes_{}, taken_{};
  bool shared_ = false;
};

// Host memory that this process can still allocate, in bytes: MemAvailable of /proc/meminfo, or the
// rest of the cgroup's limit (version 2) where that is less. Fails with the error of reading
// /proc/meminfo, or kInternal where it has no MemAvailable.
StatusOr<int64_t> AvailableHostBytes();

// Left free on a GPU for what CUDA and its libraries take after planning: local memory for the
// stack of the first kernel that spills registers (132 SMs x 2048 threads x 1 KiB = 264 MiB), code
// of kernels that are loaded at their first launch, allocation granularity of 2 MiB, CUDA graphs.
// Measurements: README.md.
inline constexpr int64_t kLibraryReserveBytes = int64_t{512} << 20;

// Bytes that a rank may allocate on a device now: on a GPU its free memory less
// kLibraryReserveBytes, whoever uses the rest; on a CPU AvailableHostBytes.
StatusOr<int64_t> AvailableBytes(kernels::Device& device);

// The allocation of a plan: one zeroed buffer per kind, owned by this object. const methods are
// thread-safe.
class Memory {
 public:
  // Allocates and zeroes all buffers; blocks until they are zeroed. kResourceExhausted if the plan
  // exceeds limit_bytes (on a GPU without the pinned kind, which is compared with the host's
  // memory) or the device has no room: the message gives bytes by kind, the limit, by how much it
  // is exceeded and what to change. Other device errors throw DeviceError.
  static StatusOr<std::unique_ptr<Memory>> Allocate(kernels::Device& device, const MemoryPlan& plan,
                                                    int64_t limit_bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Address of the block's first byte; null for an empty block. CHECKs that the block lies within
  // this plan.
  void* Data(const Block& block) const;
  // All that was reserved of a kind.
  Block Whole(Kind kind) const {
    return {.kind = kind, .bytes = bytes_[static_cast<size_t>(kind)]};
  }
  // Allocated bytes by kind; what the plan counted besides.
  const BytesByKind& Report() const { return bytes_; }
  const BytesByKind& taken() const { return taken_; }

 private:
  Memory() = default;

  BytesByKind bytes_{}, taken_{};
  std::array<std::unique_ptr<kernels::DeviceBuffer>, kNumKinds> buffers_;
};

}  // namespace mt::memory
