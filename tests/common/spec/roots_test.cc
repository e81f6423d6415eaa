// Paths of a job stay below their root, whatever links it contains.
#include "common/spec/roots.h"

#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

namespace mt::spec {
namespace {

namespace fs = std::filesystem;

class RootsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/roots_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    top_ = fs::canonical(pattern).string();
    root_ = top_ + "/root";
    fs::create_directories(root_ + "/a/b");
    fs::create_directories(top_ + "/outside");
    ASSERT_TRUE(base::WriteFileAtomic(root_ + "/a/file", "inside").ok());
    ASSERT_TRUE(base::WriteFileAtomic(top_ + "/outside/secret", "secret").ok());
    fs::create_symlink("a", root_ + "/inner");
    fs::create_symlink(root_ + "/a/b", root_ + "/inner_absolute");
    fs::create_symlink("../outside", root_ + "/out");
    fs::create_symlink(top_ + "/outside/secret", root_ + "/a/out_file");
    fs::create_symlink(top_ + "/outside/new", root_ + "/dangling");
    fs::create_symlink("loop", root_ + "/loop");
  }
  void TearDown() override { fs::remove_all(top_); }

  std::string top_;
  std::string root_;
};

TEST_F(RootsTest, ResolvesBelow) {
  EXPECT_EQ(*ResolveBelow(root_, "a/file"), root_ + "/a/file");
  EXPECT_EQ(*ResolveBelow(root_, "./a//b/"), root_ + "/a/b");
  EXPECT_EQ(*ResolveBelow(root_, "."), root_);
  EXPECT_EQ(*ResolveBelow(root_, "new/deep/folder"), root_ + "/new/deep/folder");
  EXPECT_EQ(*ResolveBelow(root_, "inner/file"), root_ + "/a/file");
  EXPECT_EQ(*ResolveBelow(root_, "inner_absolute/new"), root_ + "/a/b/new");
  EXPECT_EQ(*ResolveBelow(root_, "..."), root_ + "/...");  // an ordinary name
}

TEST_F(RootsTest, RefusesWaysOut) {
  for (const char* path : {"", "/etc/passwd", "..", "a/../..", "a/..", "../root/a"}) {
    EXPECT_EQ(ResolveBelow(root_, path).status().code(), absl::StatusCode::kInvalidArgument)
        << path;
  }
  EXPECT_FALSE(CheckRelative(std::string_view("a\0b", 3)).ok());
  for (const char* path :
       {"out", "out/secret", "a/out_file", "inner/out_file", "dangling", "dangling/x", "loop"}) {
    EXPECT_EQ(ResolveBelow(root_, path).status().code(), absl::StatusCode::kPermissionDenied)
        << path;
    EXPECT_FALSE(OpenBelow(root_, path, O_RDONLY).ok()) << path;
  }
  // A sibling folder whose name begins with the root's name is not below it.
  fs::create_directories(top_ + "/root2");
  fs::create_symlink("../root2", root_ + "/sibling");
  EXPECT_EQ(ResolveBelow(root_, "sibling").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RootsTest, RootsMustExist) {
  EXPECT_EQ(ResolveBelow("", "a").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ResolveBelow(top_ + "/nowhere", "a").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RootsTest, OpensBelow) {
  const StatusOr<base::Fd> file = OpenBelow(root_, "inner/file", O_RDONLY);
  ASSERT_TRUE(file.ok()) << file.status();
  char text[16] = {};
  EXPECT_EQ(::read(file->get(), text, sizeof(text)), 6);
  EXPECT_STREQ(text, "inside");
  EXPECT_TRUE(OpenBelow(root_, ".", O_RDONLY | O_DIRECTORY).ok());
  EXPECT_EQ(OpenBelow(root_, "a/none", O_RDONLY).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace mt::spec
