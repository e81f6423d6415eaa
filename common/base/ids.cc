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

uint64_t Hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

namespace {

std::string Hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string Hash128Hex(std::string_view bytes) {
  return Hex(XXH3_128bits(bytes.data(), bytes.size()));
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

std::string Hash128::Take() {
  std::string hex = Hex(XXH3_128bits_digest(state_->xxh));
  XXH3_128bits_reset(state_->xxh);
  return hex;
}

std::string BootId() {
  auto text = ReadFile("/proc/sys/kernel/random/boot_id");
  if (!text.ok()) return "";
  std::string id = std::move(text).value();
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace mt::base
