// The layer that shows what a crash may leave (crash_log.h) sees every way in which our code
// touches files; and what files.h promises of power losses holds.
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/common/base/crash_log.h"

namespace mt::crash {
namespace {

// A folder whose `disk` is logged; `after` is where outcomes are laid out.
class CrashTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::canonical(std::filesystem::temp_directory_path()) / "mt-crash-XXXXXX")
            .string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
    std::filesystem::create_directory(disk());
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  std::string disk() const { return top_ + "/disk"; }
  std::string after() const { return top_ + "/after"; }
  std::string Disk(const std::string& name) const { return disk() + "/" + name; }

  std::string top_;
};

// As text: "a=x b/ " with the bytes of files.
std::string Text(const Tree& tree) {
  std::string text;
  for (const auto& [path, content] : tree) {
    text += path + (content == nullptr ? "/" : "=" + *content) + " ";
  }
  return text;
}
std::set<std::string> Texts(const std::vector<Tree>& trees) {
  std::set<std::string> texts;
  for (const Tree& tree : trees) texts.insert(Text(tree));
  return texts;
}

using CrashLogTest = CrashTest;

TEST_F(CrashLogTest, SeesEveryKindOfCallAndFindsWhatItMissed) {
  std::ofstream(Disk("old")) << "old";
  CrashLog log(disk());
  std::ofstream(Disk("stream")) << "streamed";
  std::ofstream(Disk("stream"), std::ios::app) << std::string(100'000, 'x');
  std::filesystem::create_directories(Disk("a/b"));
  std::filesystem::rename(Disk("old"), Disk("a/b/moved"));
  {
    const base::Fd fd(::open(Disk("raw").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(::write(fd.get(), "abcdef", 6), 6);
    ASSERT_EQ(::pwrite(fd.get(), "XY", 2, 1), 2);
    ASSERT_EQ(::ftruncate(fd.get(), 4), 0);
    ASSERT_EQ(::fdatasync(fd.get()), 0);
  }
  EXPECT_EQ(*log.Live(log.operations().size()).at("raw"), "aXYd");
  base::Fd(::open(Disk("raw").c_str(), O_WRONLY | O_TRUNC)).Reset();
  ASSERT_TRUE(base::WriteFileAtomic(Disk("whole"), "whole").ok());
  ASSERT_EQ(::link(Disk("whole").c_str(), Disk("linked").c_str()), 0);
  std::filesystem::create_directories(Disk("gone/below"));
  std::ofstream(Disk("gone/below/file")) << "x";
  std::filesystem::remove_all(Disk("gone"));
  std::filesystem::remove(Disk("whole"));
  EXPECT_EQ(log.Check(), "");
  EXPECT_EQ(log.Live(log.operations().size()).size(), 6U);  // a a/b a/b/moved linked raw stream

  // Through a stream's buffer of the C library, which is not seen.
  std::FILE* file = std::fopen(Disk("unseen").c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("x", file);
  std::fclose(file);
  log.Stop();
  EXPECT_EQ(log.Check(), "unseen was written unseen");
}

TEST_F(CrashLogTest, WhatIsNotSyncedMayBeLostEachByItself) {
  std::ofstream(Disk("f")) << "11";
  CrashLog log(disk());
  std::ofstream(Disk("f"), std::ios::app) << "2222";
  log.Mark("appended");
  std::filesystem::rename(Disk("f"), Disk("g"));
  std::ofstream(Disk("n")) << "";
  log.Mark("renamed");
  ASSERT_TRUE(base::SyncDir(disk()).ok());
  log.Mark("folder");
  base::Fd fd(::open(Disk("g").c_str(), O_RDONLY));
  ASSERT_EQ(::fsync(fd.get()), 0);
  log.Stop();
  const std::string zeros("11\0\0\0\0", 6);
  EXPECT_EQ(Texts(log.Outcomes(log.Before("appended"))),
            (std::set<std::string>{"f=11 ", "f=1122 ", "f=112222 ", "f=" + zeros + " "}));
  const auto renamed = Texts(log.Outcomes(log.Before("renamed")));
  EXPECT_EQ(renamed.size(), 16U);  // f or g, n or not, and the bytes
  for (const char* one : {"f=11 ", "f=112222 n= ", "g=11 ", "g=1122 n= ", "g=112222 n= "}) {
    EXPECT_TRUE(renamed.contains(one)) << one;
  }
  const auto folder = Texts(log.Outcomes(log.Before("folder")));
  EXPECT_EQ(folder, (std::set<std::string>{
                        "g=11 n= ", "g=1122 n= ", "g=112222 n= ", "g=" + zeros + " n= "}));
  EXPECT_FALSE(log.IsDurable(log.Before("folder"), "g"));
  EXPECT_EQ(Texts(log.Outcomes(log.operations().size())), (std::set<std::string>{"g=112222 n= "}));
  EXPECT_TRUE(log.IsDurable(log.operations().size(), "g"));
}

TEST_F(CrashLogTest, ANewFolderTakesAllThatIsInItAlong) {
  CrashLog log(disk());
  std::filesystem::create_directory(Disk("d"));
  ASSERT_TRUE(base::WriteFileAtomic(Disk("d/f"), "x").ok());
  log.Stop();
  // Synced within its folder, but the folder itself has no certain name.
  EXPECT_TRUE(log.IsDurable(log.operations().size(), "d/f"));
  EXPECT_EQ(Texts(log.Outcomes(log.operations().size())), (std::set<std::string>{"", "d/ d/f=x "}));
}

class DurableFilesTest : public CrashTest {
 protected:
  static std::string ReadOr(const std::string& path, const std::string& none) {
    return base::Exists(path) ? base::ReadFile(path).value() : none;
  }
};

TEST_F(DurableFilesTest, AnAtomicWriteIsOldOrNewAndSurelyNewOnceItIsDone) {
  std::ofstream(Disk("f")) << "the old content";
  CrashLog log(disk());
  ASSERT_TRUE(base::WriteFileAtomic(Disk("f"), "the new one, which is longer").ok());
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  const size_t all = log.operations().size();
  std::set<std::string> seen;
  EXPECT_EQ(log.FirstComplaint(0, all, after(),
                               [&](const std::string& folder) {
                                 const std::string text = ReadOr(folder + "/f", "nothing");
                                 seen.insert(text);
                                 return text.starts_with("the old content") ||
                                                text == "the new one, which is longer"
                                            ? ""
                                            : "there is \"" + text + "\"";
                               }),
            "");
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_EQ(Texts(log.Outcomes(all)), (std::set<std::string>{"f=the new one, which is longer "}));
}

TEST_F(DurableFilesTest, AFailedSyncIsAnErrorAndTheOldFileStays) {
  for (const int nth : {1, 2}) {  // the file's, the folder's
    std::filesystem::remove_all(disk());
    std::filesystem::create_directory(disk());
    std::ofstream(Disk("f")) << "old";
    CrashLog log(disk());
    log.FailSync(nth);
    EXPECT_EQ(base::WriteFileAtomic(Disk("f"), "new").code(), base::ErrnoError(EIO, "").code());
    log.Stop();
    for (const Tree& tree : log.Outcomes(log.operations().size())) {
      const std::string text = *tree.at("f");
      EXPECT_TRUE(text == "old" || (nth == 2 && text == "new")) << text;
    }
  }
}

// Every folder that it makes, not the last one alone.
TEST_F(DurableFilesTest, MadeFoldersStay) {
  CrashLog log(disk());
  ASSERT_TRUE(base::MakeDirs(Disk("a/b/c")).ok());
  ASSERT_TRUE(base::MakeDirs(Disk("a/b/d/")).ok());
  ASSERT_TRUE(base::MakeDirs(Disk("a")).ok());
  log.Stop();
  EXPECT_EQ(Texts(log.Outcomes(log.operations().size())),
            (std::set<std::string>{"a/ a/b/ a/b/c/ a/b/d/ "}));
}

}  // namespace
}  // namespace mt::crash
