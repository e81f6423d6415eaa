// Takes bytes between a device and plain memory of the host, which a GPU copies to and from only
// through a driver's buffer and with the host waiting. Two pinned pieces: while the host works on
// one, the device copies the other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/core/device.h"

namespace mt::memory {

// One thread. Device and stream must outlive it. Copies are enqueued on the stream.
class Staging {
 public:
  static constexpr int64_t kPieceBytes = int64_t{8} << 20;
  static constexpr int64_t kBytes = 2 * kPieceBytes;

  // `pinned`: kBytes of pinned memory, which outlive it too.
  Staging(kernels::Device* device, kernels::Stream* stream, void* pinned);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Reading: starts the copy of at most kPieceBytes of device memory. What was taken last may be
  // overwritten; one piece that was not taken yet may be under way.
  void Prefetch(const void* from, int64_t bytes);
  // Waits for the oldest piece that was not taken and returns its bytes, valid until the next
  // Prefetch.
  const void* Take();
  // Forgets pieces that were not taken, once they are there.
  void Drain();

  // Writing: any number of bytes; blocks until they are there. No piece may be under way.
  void Write(void* to, const void* from, int64_t bytes);

 private:
  struct Piece {
    void* pinned = nullptr;
    std::unique_ptr<kernels::Event> done;  // of its last copy
  };
  Piece& piece(int64_t n) { return pieces_[static_cast<size_t>(n % 2)]; }

  kernels::Device* const device_;
  kernels::Stream* const stream_;
  std::array<Piece, 2> pieces_;
  int64_t num_prefetched_ = 0;
  int64_t num_taken_ = 0;
};

}  // namespace mt::memory
