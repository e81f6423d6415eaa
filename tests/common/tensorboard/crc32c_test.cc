// CRC-32C against the published examples (RFC 3720, B.4), and the mask.
#include "common/tensorboard/crc32c.h"

#include <string>

#include <gtest/gtest.h>

namespace mt::tensorboard {
namespace {

TEST(Crc32cTest, PublishedExamples) {
  EXPECT_EQ(Crc32c(""), 0U);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  EXPECT_EQ(Crc32c(rising), 0x46dd794eU);
}

TEST(Crc32cTest, TheMaskTurnsAndAdds) {
  EXPECT_EQ(MaskedCrc32c(""), 0xa282ead8U);
  // 0xe3069283 turned right by 15 bits is 0x2507c60d.
  EXPECT_EQ(MaskedCrc32c("123456789"), 0x2507c60dU + 0xa282ead8U);
}

}  // namespace
}  // namespace mt::tensorboard
