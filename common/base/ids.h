// Names for things: unique ids of jobs, workers and requests, and stable 64-bit hashes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mt::base {

// A random version-4 UUID, lower case, from the kernel's generator.
std::string NewUid();
// `bytes` random bytes as hex: tokens.
std::string RandomHex(int bytes);
// XXH3 of the bytes, seeded: stable across hosts and versions (part of the checkpoint format).
uint64_t Hash64(std::string_view bytes, uint64_t seed = 0);
// XXH3 128 as 32 hex digits.
std::string Hash128Hex(std::string_view bytes);
// This boot's id (/proc/sys/kernel/random/boot_id), or "" where the kernel has none.
std::string BootId();

}  // namespace mt::base
