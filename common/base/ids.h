// Identifiers and hashes: random ids of jobs, workers and requests, and hashes that are the same on
// every host. Thread-safe, except that one Hash128 belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace mt::base {

// A random version-4 UUID, lower case, from the kernel's generator.
std::string NewUid();
// True for a text that NewUid may have made: 36 characters, lower case.
bool IsUid(std::string_view text);
// `bytes` random bytes as 2 * `bytes` lower-case hex digits, for tokens and sessions.
std::string RandomHex(int bytes);
// XXH3-64 of the bytes with a seed. It is the same on all hosts and in all versions: the checkpoint
// format depends on it.
uint64_t Hash64(std::string_view bytes, uint64_t seed = 0);
// XXH3-128 without a seed as 32 hex digits, the high half first.
std::string Hash128Hex(std::string_view bytes);
// The same hash as two numbers, the high half first, where many are kept.
using Hash128Value = std::array<uint64_t, 2>;
Hash128Value Hash128Of(std::string_view bytes);
// As Hash128Hex prints it; and from that text, nullopt for any other.
std::string HexOf(const Hash128Value& hash);
std::optional<Hash128Value> ParseHash128(std::string_view hex);
// The same hash over bytes that arrive in pieces.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;
  void Add(std::string_view bytes);
  // The hash, as Hash128Hex prints it, of all bytes added since construction or the last Take; then
  // starts over.
  std::string Take();
  // The same as numbers.
  Hash128Value TakeValue();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};
// Id of the current boot (/proc/sys/kernel/random/boot_id) without the newline; "" where the kernel
// has none.
std::string BootId();

}  // namespace mt::base
