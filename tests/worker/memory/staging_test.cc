// Copies through the two pinned buffers, on a device that copies as late as it may.
#include "worker/memory/staging.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/memory/late_device.h"

namespace mt::memory {
namespace {

constexpr int64_t kPiece = Staging::kPieceBytes;

class StagingTest : public testing::Test {
 protected:
  static std::vector<unsigned char> Pattern(int64_t bytes) {
    std::vector<unsigned char> out(static_cast<size_t>(bytes));
    uint32_t state = 7;
    for (unsigned char& byte : out) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<unsigned char>(state >> 24);
    }
    return out;
  }

  LateDevice device_;
  LateStream stream_;
  std::vector<unsigned char> pinned_ = std::vector<unsigned char>(Staging::kBytes);
};

TEST_F(StagingTest, WritesAnyNumberOfBytes) {
  Staging staging(&device_, &stream_, pinned_.data());
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kPiece, kPiece + 1, 3 * kPiece - 5}) {
    const std::vector<unsigned char> sent = Pattern(bytes);
    std::vector<unsigned char> there(static_cast<size_t>(bytes));
    staging.Write(there.data(), sent.data(), bytes);
    EXPECT_EQ(there, sent) << bytes;
  }
}

TEST_F(StagingTest, ReadsPieceByPieceOneAhead) {
  Staging staging(&device_, &stream_, pinned_.data());
  const std::vector<unsigned char> there = Pattern(5 * kPiece / 2);
  const int64_t bytes = static_cast<int64_t>(there.size());
  std::vector<unsigned char> read;
  staging.Prefetch(there.data(), kPiece);
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t next = at + kPiece;
    if (next < bytes) staging.Prefetch(there.data() + next, std::min(kPiece, bytes - next));
    EXPECT_LT(stream_.done(), stream_.enqueued()) << "the next piece is not waited for";
    const auto* piece = static_cast<const unsigned char*>(staging.Take());
    read.insert(read.end(), piece, piece + std::min(kPiece, bytes - at));
  }
  EXPECT_EQ(read, there);
}

TEST_F(StagingTest, PiecesThatNobodyTookAreForgotten) {
  Staging staging(&device_, &stream_, pinned_.data());
  const std::vector<unsigned char> there = Pattern(100), sent(100, 3);
  staging.Prefetch(there.data(), 100);
  staging.Prefetch(there.data(), 50);
  EXPECT_DEATH(staging.Prefetch(there.data(), 1), "under way");
  staging.Drain();
  std::vector<unsigned char> written(100);
  staging.Write(written.data(), sent.data(), 100);
  EXPECT_EQ(written, sent);
  staging.Prefetch(there.data(), 100);
  EXPECT_EQ(std::memcmp(staging.Take(), there.data(), 100), 0);
}

}  // namespace
}  // namespace mt::memory
