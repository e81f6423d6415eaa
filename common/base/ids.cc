// Ids come from getrandom(2), never from a seeded generator; hashes are xxHash's XXH3.
#include "common/base/ids.h"

#include <sys/random.h>
#include <xxhash.h>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/files.h"

namespace mt::base {

std::string RandomHex(int bytes) {
  std::string raw(static_cast<size_t>(bytes), '\0');
  CHECK_EQ(::getrandom(raw.data(), raw.size(), 0), static_cast<ssize_t>(raw.size()));
  std::string out;
  for (const char c : raw) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string NewUid() {
  std::string hex = RandomHex(16);
  hex[12] = '4';
  hex[16] = "89ab"[hex[16] % 4];
  return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" +
         hex.substr(16, 4) + "-" + hex.substr(20);
}

bool IsUid(std::string_view text) {
  constexpr std::string_view kForm = "hhhhhhhh-hhhh-4hhh-vhhh-hhhhhhhhhhhh";
  constexpr std::string_view kHex = "0123456789abcdef";
  if (text.size() != kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const std::string_view allowed = kForm[i] == 'h'   ? kHex
                                     : kForm[i] == 'v' ? std::string_view("89ab")
                                                       : kForm.substr(i, 1);
    if (allowed.find(text[i]) == std::string_view::npos) return false;
  }
  return true;
}

uint64_t Hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string Hash128Hex(std::string_view bytes) { return HexOf(Hash128Of(bytes)); }

Hash128Value Hash128Of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string HexOf(const Hash128Value& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex(32, '0');
  for (size_t i = 0; i < hex.size(); ++i)
    hex[i] = kDigits[hash[i / 16] >> (60 - 4 * (i % 16)) & 15];
  return hex;
}

std::optional<Hash128Value> ParseHash128(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  Hash128Value hash{};
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    uint64_t& half = hash[i / 16];
    half = half << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return hash;
}

struct Hash128::State {
  XXH3_state_t* xxh = XXH3_createState();
};

Hash128::Hash128() : state_(std::make_unique<State>()) {
  CHECK(state_->xxh != nullptr) << "out of memory";
  XXH3_128bits_reset(state_->xxh);
}

Hash128::~Hash128() { XXH3_freeState(state_->xxh); }

void Hash128::Add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Hash128::Take() { return HexOf(TakeValue()); }

Hash128Value Hash128::TakeValue() {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  XXH3_128bits_reset(state_->xxh);
  return {hash.high64, hash.low64};
}

std::string BootId() {
  auto text = ReadFile("/proc/sys/kernel/random/boot_id");
  if (!text.ok()) return "";
  std::string id = std::move(text).value();
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace mt::base
