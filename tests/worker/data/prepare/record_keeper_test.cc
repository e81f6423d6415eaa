// A write-back that fails is reported by the kernel once: it must end the run, and nothing may be
// recorded after it. A pipe stands for the file: it cannot be synced.
#include "worker/data/prepare/record_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/data/temp_data.h"

namespace mt::data {
namespace {

class RecordKeeperTest : public ::testing::Test {
 protected:
  RecordKeeperTest() : file_(::open(dir_.Path("bin").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_ = base::Fd(ends[0]);
    pipe_ = base::Fd(ends[1]);
  }
  RecordKeeper::Args Args(int bin_fd) const {
    return {.path = record_, .bin_fd = bin_fd, .lengths_fd = file_.get()};
  }
  const TempDir dir_;
  const std::string record_ = dir_.Path("record");
  base::Fd file_, read_, pipe_;
};

TEST_F(RecordKeeperTest, WhatWasOfferedLastIsRecordedAtTheEnd) {
  RecordKeeper keeper(Args(file_.get()));
  EXPECT_TRUE(keeper.Offer(PrepareRecord{}).ok());
  EXPECT_TRUE(keeper.Stop().ok());
  EXPECT_TRUE(base::Exists(record_));
}

TEST_F(RecordKeeperTest, AFailedSyncIsReportedAtTheEndAndNothingIsRecordedAfterIt) {
  RecordKeeper keeper(Args(pipe_.get()));
  (void)keeper.Offer(PrepareRecord{});  // may be reported here, or not yet
  EXPECT_FALSE(keeper.Stop().ok());
  EXPECT_FALSE(keeper.Stop().ok()) << "as often as it is asked";
  EXPECT_FALSE(base::Exists(record_));
}

}  // namespace
}  // namespace mt::data
