// Paths of a job stay below their root, whatever links it contains.
#include "common/spec/roots.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
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

TEST(OneSpellingTest, OfOnePathThereIsOne) {
  for (const char* path : {"a/b", "./a/b", "a//b", "a/b/", "a/./b/.", "a/b//"})
    EXPECT_EQ(OneSpelling(path), "a/b") << path;
  EXPECT_EQ(OneSpelling("."), "");
  EXPECT_EQ(OneSpelling(""), "");
  EXPECT_EQ(OneSpelling("/a//b/"), "/a/b");
  EXPECT_EQ(OneSpelling("a/.../b.c"), "a/.../b.c");
  EXPECT_EQ(OneSpelling("a/../b"), "a/../b") << "refused elsewhere";
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

TEST_F(RootsTest, SaysWhatTheLinkIsAndWhatToDo) {
  const std::string out = base::Message(OpenBelow(root_, "a/out_file", O_RDONLY).status());
  EXPECT_EQ(out, root_ + "/a/out_file is a link to " + top_ +
                     "/outside/secret, outside of the root " + root_ +
                     ": copy what it names below the root, or give the worker a root that " +
                     "holds both");
  const std::string nowhere = base::Message(ResolveBelow(root_, "dangling").status());
  EXPECT_NE(nowhere.find("cannot be followed"), std::string::npos) << nowhere;
}

TEST_F(RootsTest, OpensWholePathsBelowTheRoot) {
  const base::FileOpener open = BelowRoot(root_);
  EXPECT_TRUE(open(root_ + "/inner/file").ok());
  EXPECT_EQ(*base::ReadFile(root_ + "/a/file", open), "inside");
  EXPECT_EQ(open(root_ + "/out/secret").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(open(top_ + "/outside/secret").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(root_ + "2/x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(root_ + "/a/../../outside/secret").status().code(),
            absl::StatusCode::kInvalidArgument);
  // The root itself may be given through a link.
  fs::create_symlink(root_, top_ + "/alias");
  EXPECT_TRUE(BelowRoot(top_ + "/alias")(top_ + "/alias/a/file").ok());
  EXPECT_TRUE(BelowRoot(top_ + "/alias")(root_ + "/a/file").ok());
  EXPECT_TRUE(BelowRoot(top_ + "/alias/")(top_ + "/alias/a/file").ok());
  EXPECT_TRUE(BelowRoot("/")(root_ + "/a/file").ok());
}

// Has the kernel answer openat2 with `error` in this process, as old kernels and filters of
// containers do. Ends the process where that is not possible.
void WithoutOpenat2(int error) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {.len = 4, .filter = filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ||
      ::syscall(SYS_openat2, AT_FDCWD, ".", nullptr, 0) != -1 || errno != error) {
    ::_exit(3);
  }
}

TEST_F(RootsTest, OpensBelowWithoutTheSystemCall) {
  const auto behaves = [this] {
    if (!OpenBelow(root_, "inner/file", O_RDONLY).ok()) return 1;
    if (!OpenBelow(root_, "inner_absolute", O_RDONLY | O_DIRECTORY).ok()) return 1;
    if (!OpenBelow(root_, ".", O_RDONLY | O_DIRECTORY).ok()) return 1;
    if (OpenBelow(root_, "a/none", O_RDONLY).status().code() != absl::StatusCode::kNotFound) {
      return 1;
    }
    for (const char* path : {"out/secret", "a/out_file", "dangling", "loop"}) {
      if (OpenBelow(root_, path, O_RDONLY).ok()) return 2;
    }
    return 0;
  };
  for (const int error : {ENOSYS, EPERM}) {
    EXPECT_EXIT(
        {
          WithoutOpenat2(error);
          ::_exit(behaves());
        },
        testing::ExitedWithCode(0), "")
        << error;
  }
}

// A folder on the way becomes a link between the look and the opening: another thread swaps them,
// and no opening ever gives what lies outside.
void NeverFollowsASwappedLink(const std::string& root, const std::string& top) {
  fs::create_directories(top + "/outside/deep");
  ASSERT_TRUE(base::WriteFileAtomic(top + "/outside/deep/file", "secret").ok());
  fs::create_directories(root + "/swap/deep");
  ASSERT_TRUE(base::WriteFileAtomic(root + "/swap/deep/file", "inside").ok());
  fs::create_symlink(top + "/outside", top + "/link");
  std::atomic<bool> stop = false;
  std::atomic<int> swaps = 0;
  std::thread swapper([&] {
    for (; !stop; ++swaps) {
      ::syscall(SYS_renameat2, AT_FDCWD, (root + "/swap").c_str(), AT_FDCWD,
                (top + "/link").c_str(), RENAME_EXCHANGE);
    }
  });
  // On a busy machine one of the two may stand still while the other one does all of its part.
  int opened = 0;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto is_enough = [&](int tries) {
    return opened > 0 && swaps > 100 && (tries >= 20'000 || opened >= 2'000);
  };
  for (int i = 0; !is_enough(i) && std::chrono::steady_clock::now() < limit; ++i) {
    const StatusOr<base::Fd> file = OpenBelow(root, "swap/deep/file", O_RDONLY);
    if (!file.ok()) continue;
    ++opened;
    char text[8] = {};
    EXPECT_EQ(::read(file->get(), text, 6), 6);
    EXPECT_STREQ(text, "inside");
  }
  stop = true;
  swapper.join();
  EXPECT_GT(opened, 0);
}

TEST_F(RootsTest, ALinkThatIsSwappedInIsNotFollowed) { NeverFollowsASwappedLink(root_, top_); }

TEST_F(RootsTest, ALinkThatIsSwappedInIsNotFollowedWithoutTheSystemCall) {
  EXPECT_EXIT(
      {
        WithoutOpenat2(ENOSYS);
        NeverFollowsASwappedLink(root_, top_);
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mt::spec
