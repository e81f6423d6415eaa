// Whole files: reading, atomic replacement, and errors that name the path.
#include "common/base/files.h"

#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

namespace mt::base {
namespace {

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/files_XXXXXX";
    ASSERT_NE(::mkdtemp(dir_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  size_t NumEntries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }
  std::string dir_;
};

TEST_F(FilesTest, WritesAndReplaces) {
  const std::string path = dir_ + "/a";
  ASSERT_TRUE(WriteFileAtomic(path, "one").ok());
  const std::string big(200'000, 'x');
  ASSERT_TRUE(WriteFileAtomic(path, big).ok());
  EXPECT_EQ(*ReadFile(path), big);
  EXPECT_EQ(*FileSize(path), 200'000);
  EXPECT_EQ(NumEntries(), 1u);  // no temporary remains
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_EQ(*ReadFile(path), "");
}

TEST_F(FilesTest, AFailedWriteLeavesTheOldFile) {
  const std::string folder = dir_ + "/folder";
  ASSERT_TRUE(MakeDirs(folder + "/inner").ok());
  const Status status = WriteFileAtomic(folder, "x");  // rename onto a non-empty folder fails
  EXPECT_FALSE(status.ok());
  EXPECT_NE(Message(status).find(folder), std::string::npos);
  EXPECT_TRUE(Exists(folder + "/inner"));
  EXPECT_EQ(NumEntries(), 1u);
}

TEST_F(FilesTest, ErrorsNameThePath) {
  const std::string path = dir_ + "/none";
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(ReadFile(path).status()), "open " + path + ": No such file or directory");
  EXPECT_FALSE(FileSize(path).ok());
  EXPECT_FALSE(SyncDir(path).ok());
  EXPECT_FALSE(Exists(path));
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_FALSE(MakeDirs(path + "/below").ok());
  EXPECT_GT(*FreeBytes(dir_), 0);
}

TEST_F(FilesTest, FdClosesWhatItOwns) {
  int raw = -1;
  {
    Fd fd(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(fd);
    raw = fd.get();
    Fd other = std::move(fd);
    EXPECT_EQ(other.get(), raw);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(JoinPathTest, Joins) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", ""), "a");
}

}  // namespace
}  // namespace mt::base
