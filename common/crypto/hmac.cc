// OpenSSL's libcrypto. A call that fails here is a bug or a broken library, never the caller's
// data.
#include "common/crypto/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/base/check.h"

namespace mt::crypto {
namespace {

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string HmacSha256(std::string_view key, std::string_view message) {
  std::string code(kHmacBytes, '\0');
  unsigned int size = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Bytes(message), message.size(),
           reinterpret_cast<unsigned char*>(code.data()), &size);
  CHECK(made != nullptr && size == kHmacBytes);
  return code;
}

bool SameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(int count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), count) == 1);
  return bytes;
}

}  // namespace mt::crypto
