// Buffers alternate by a running number; a CUDA event behind each copy tells when its buffer may be
// read or reused.
#include "worker/memory/staging.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace mt::memory {

Staging::Staging(kernels::Device* device, kernels::Stream* stream, void* pinned)
    : device_(device), stream_(stream) {
  auto* at = static_cast<char*>(pinned);
  for (Piece& piece : pieces_) {
    piece = {.pinned = at, .done = device_->CreateEvent()};
    at += kPieceBytes;
  }
}

void Staging::Prefetch(const void* from, int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= kPieceBytes) << bytes;
  CHECK_LT(num_prefetched_ - num_taken_, 2) << "both pieces are under way";
  Piece& to = piece(num_prefetched_++);
  if (bytes > 0) device_->Copy(*stream_, to.pinned, from, bytes);
  to.done->Record(*stream_);
}

const void* Staging::Take() {
  CHECK_LT(num_taken_, num_prefetched_);
  Piece& taken = piece(num_taken_++);
  taken.done->Synchronize();
  return taken.pinned;
}

void Staging::Drain() {
  while (num_taken_ < num_prefetched_) Take();
}

void Staging::Write(void* to, const void* from, int64_t bytes) {
  CHECK_EQ(num_prefetched_, num_taken_) << "a piece is under way";
  for (int64_t at = 0, n = 0; at < bytes; at += kPieceBytes, ++n) {
    Piece& via = piece(n);
    via.done->Synchronize();
    const int64_t count = std::min(kPieceBytes, bytes - at);
    std::memcpy(via.pinned, static_cast<const char*>(from) + at, static_cast<size_t>(count));
    device_->Copy(*stream_, static_cast<char*>(to) + at, via.pinned, count);
    via.done->Record(*stream_);
  }
  for (Piece& via : pieces_) via.done->Synchronize();
}

}  // namespace mt::memory
