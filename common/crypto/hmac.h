// Keyed hashes by which the coordinator recognises what it has given out: HMAC-SHA256 (RFC 2104,
// FIPS 180-4), and a comparison that does not tell by its time how far a guess is right.
// Thread-safe; nothing blocks.
#pragma once

#include <string>
#include <string_view>

namespace mt::crypto {

// Bytes of a code.
inline constexpr int kHmacBytes = 32;

// The code of `message` under `key`, of any length: kHmacBytes raw bytes.
std::string HmacSha256(std::string_view key, std::string_view message);
// Whether both are the same; the time depends on their lengths only.
bool SameSecret(std::string_view a, std::string_view b);
// `count` bytes from the generator of the library, which the kernel seeds.
std::string RandomBytes(int count);

}  // namespace mt::crypto
