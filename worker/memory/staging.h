// Copies between device memory and pageable host memory through two pinned buffers. A direct CUDA
// copy of pageable memory goes through a buffer of the driver and blocks the host; with two buffers
// of our own the host works on one while the device copies the other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/core/device.h"

namespace mt::memory {

// Not thread-safe. Device and stream must outlive it. All copies are enqueued on that stream.
class Staging {
 public:
  // Size of one pinned buffer and of both.
  static constexpr int64_t kPieceBytes = int64_t{8} << 20;
  static constexpr int64_t kBytes = 2 * kPieceBytes;

  // `pinned`: kBytes of page-locked memory, not owned.
  Staging(kernels::Device* device, kernels::Stream* stream, void* pinned);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Reading, first half: enqueues the copy of at most kPieceBytes (CHECK) of device memory to a
  // pinned buffer. At most two copies may be outstanding (CHECK); the buffer of an earlier Take may
  // be overwritten.
  void Prefetch(const void* from, int64_t bytes);
  // Reading, second half: blocks until the oldest outstanding copy is complete and returns its
  // bytes, valid until the next Prefetch.
  const void* Take();
  // Waits for all outstanding copies and discards them.
  void Drain();

  // Writing: copies any number of bytes from host to device and blocks until they have arrived. No
  // prefetch may be outstanding (CHECK).
  void Write(void* to, const void* from, int64_t bytes);

 private:
  struct Piece {
    void* pinned = nullptr;
    std::unique_ptr<kernels::Event> done;  // recorded behind its last copy
  };
  Piece& piece(int64_t n) { return pieces_[static_cast<size_t>(n % 2)]; }

  kernels::Device* const device_;
  kernels::Stream* const stream_;
  std::array<Piece, 2> pieces_;
  int64_t num_prefetched_ = 0;
  int64_t num_taken_ = 0;
};

}  // namespace mt::memory
