// Names for things: unique ids of jobs, workers and requests, and stable 64-bit hashes.
#pragma once

#include <cstdint>
#include <memory>
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
// The same of bytes that come piece by piece. One thread.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;
  void Add(std::string_view bytes);
  // Of what was added since the start or the last Take; starts anew.
  std::string Take();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};
// This boot's id (/proc/sys/kernel/random/boot_id), or "" where the kernel has none.
std::string BootId();

}  // namespace mt::base
