// Places and copies within buffers of any type, for groups whose members read each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mt::comm {

// The address `bytes` behind the begin of `data`.
inline std::byte* At(void* data, int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }
inline const std::byte* At(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

// Does nothing where a member's own part is already in place. The two may overlap.
inline void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

}  // namespace mt::comm
