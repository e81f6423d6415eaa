// HMAC-SHA256 against the test cases of RFC 4231, and what is built on it.
#include "common/crypto/hmac.h"

#include <string>

#include <gtest/gtest.h>

namespace mt::crypto {
namespace {

std::string Hex(const std::string& bytes) {
  const char* digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

std::string Counting(int from, int to) {
  std::string bytes;
  for (int i = from; i <= to; ++i) bytes += static_cast<char>(i);
  return bytes;
}

// RFC 4231, sections 4.2 to 4.8; 4.6 shortens its code and is left out.
TEST(HmacTest, AgreesWithRfc4231) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(Hex(HmacSha256(Counting(1, 25), std::string(50, '\xcd'))),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  const std::string long_key(131, '\xaa');
  EXPECT_EQ(Hex(HmacSha256(long_key, "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(Hex(HmacSha256(long_key,
                           "This is a test using a larger than block-size key and a larger than "
                           "block-size data. The key needs to be hashed before being used by the "
                           "HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacTest, ASecretIsTheSameOnlyAsAWhole) {
  const std::string secret = HmacSha256("key", "node");
  EXPECT_TRUE(SameSecret(secret, HmacSha256("key", "node")));
  for (size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(SameSecret(secret, other)) << i;
  }
  EXPECT_FALSE(SameSecret(secret, secret.substr(0, 31)));
  EXPECT_FALSE(SameSecret(secret.substr(0, 31), secret));
  EXPECT_FALSE(SameSecret("", secret));
}

TEST(HmacTest, RandomBytesAreNeverTheSame) {
  EXPECT_EQ(RandomBytes(32).size(), 32u);
  EXPECT_NE(RandomBytes(32), RandomBytes(32));
}

}  // namespace
}  // namespace mt::crypto
