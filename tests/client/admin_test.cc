// `mtctl admin backup`: the file is there as a whole or not at all, and nothing is overwritten.
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

class AdminTest : public testing::Test {
 protected:
  AdminTest() {
    std::filesystem::create_directories(folder_);
    server_.state().backup = {"first ", std::string(100'000, 'x'), " last"};
  }
  ~AdminTest() override { std::filesystem::remove_all(folder_); }
  Ran Backup() { return Mtctl(&server_, {"admin", "backup", file_}); }
  FakeCoordinator server_;
  const std::string folder_ = testing::TempDir() + "mt-admin-" + base::RandomHex(6);
  const std::string file_ = folder_ + "/saved.tar";
};

TEST_F(AdminTest, ABackupIsWrittenWhole) {
  const Ran ran = Backup();
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("saved.tar (97.7 KiB)"));
  EXPECT_EQ(*base::ReadFile(file_), "first " + std::string(100'000, 'x') + " last");
  EXPECT_FALSE(base::Exists(file_ + ".part"));
  struct stat info {};
  ASSERT_EQ(stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U) << "it holds the cluster's key";
}

TEST_F(AdminTest, ABackupThatBreaksLeavesNothing) {
  server_.state().refuse = {grpc::StatusCode::DATA_LOSS, "the store is damaged"};
  const Ran ran = Backup();
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("the store is damaged"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(AdminTest, NothingIsOverwritten) {
  for (const std::string& name : {file_, file_ + ".part"}) {
    std::ofstream(name) << "earlier";
    const Ran ran = Backup();
    EXPECT_NE(ran.code, 0);
    EXPECT_THAT(ran.err, HasSubstr(name));
    EXPECT_EQ(*base::ReadFile(name), "earlier");
    std::filesystem::remove(name);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  }
}

}  // namespace
}  // namespace mt::client
