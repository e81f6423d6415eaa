// A restore takes whole archives of safe names only; one that is refused leaves no store.
#include "daemon/backup/restore.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/backup/tar.h"
#include "tests/daemon/backup/backup_fixture.h"

namespace mt::daemon {
namespace {

using ::testing::HasSubstr;

// Gives a header that was changed its sum again.
void Sum(std::string* header) {
  int sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>((*header)[i]);
  header->replace(148, 7, fmt::format("{:06o}", sum) + '\0');
}

class RefusedRestoreTest : public BackupTest {
 protected:
  void SetUp() override {
    BackupTest::SetUp();
    Fill(50);
    ASSERT_TRUE(Save(nullptr, &whole_).ok());
  }
  Status Restore(const std::string& archive) {
    Put(file_, archive);
    const Status status = RestoreBackup(file_, restored_).status();
    EXPECT_FALSE(SqliteStore::Open(restored_).ok());
    EXPECT_FALSE(fs::exists(restored_ + "/restore.tmp"));
    EXPECT_FALSE(fs::exists(restored_ + "/history"));
    return status;
  }
  // The archive with one more file in front.
  std::string With(const std::string& header, const std::string& content) {
    return header + content + std::string(TarPadding(static_cast<int64_t>(content.size())), '\0') +
           whole_;
  }
  std::string whole_;
};

TEST_F(RefusedRestoreTest, WhatEndsTooEarly) {
  for (size_t size = 0; size + 2 * kTarBlock < whole_.size(); size += 61 * kTarBlock + 100) {
    const Status status = Restore(whole_.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << status;
  }
  // Cut between two files, and ended well.
  const size_t sums = whole_.rfind("backup.sums");
  EXPECT_THAT(base::Message(Restore(whole_.substr(0, sums) + TarEnd())),
              HasSubstr("not a whole backup"));
}

TEST_F(RefusedRestoreTest, WhatIsDamaged) {
  int flipped = 0;
  for (size_t at = 0; at + 2 * kTarBlock < whole_.size();) {
    const auto entry = ParseTarHeader(whole_.substr(at, kTarBlock));
    ASSERT_TRUE(entry.ok() && entry->has_value());
    const auto size = static_cast<size_t>((*entry)->size);
    // In the header (its name, its size, its time) and in the file, but not in its padding.
    std::vector<size_t> places = {at, at + 130, at + 140};
    for (size_t place = 0; place < size; place += 19'973) places.push_back(at + kTarBlock + place);
    for (const size_t place : places) {
      std::string damaged = whole_;
      damaged[place] = static_cast<char>(damaged[place] ^ 1);
      EXPECT_EQ(Restore(damaged).code(), absl::StatusCode::kDataLoss) << place;
      ++flipped;
    }
    at += kTarBlock + size + TarPadding((*entry)->size);
  }
  EXPECT_GT(flipped, 30);
}

TEST_F(RefusedRestoreTest, NamesThatLeadElsewhere) {
  for (const char* name : {"../x", "/tmp/mt-x", "history/../../x", "history//x", "./x", "history/.",
                           "history/a\\b", "history/a b", "etc/passwd", "coordinator.lock"}) {
    auto header = TarHeader({.name = "history/x", .size = 4});
    ASSERT_TRUE(header.ok());
    header->replace(0, 16, std::string(name) + std::string(16 - std::strlen(name), '\0'));
    Sum(&*header);
    const Status status = Restore(With(*header, "evil"));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << status;
    EXPECT_THAT(base::Message(status), HasSubstr(name));
  }
  EXPECT_FALSE(fs::exists(folder_ + "/x"));
}

TEST_F(RefusedRestoreTest, AnythingButAFile) {
  auto link = TarHeader({.name = "history/x", .size = 0});
  (*link)[156] = '2';
  Sum(&*link);
  EXPECT_THAT(base::Message(Restore(With(*link, ""))), HasSubstr("no regular file"));
}

TEST_F(RefusedRestoreTest, AFileThatWasAddedOrComesTwice) {
  EXPECT_EQ(Restore(With(*TarHeader({.name = "history/x", .size = 4}), "evil")).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_FALSE(Restore(With(*TarHeader({.name = "history/journal", .size = 4}), "evil")).ok());
}

TEST_F(RefusedRestoreTest, AFolderThatHoldsSomething) {
  Put(restored_ + "/notes.txt", "x");
  Put(file_, whole_);
  const Status status = RestoreBackup(file_, restored_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::Message(status), HasSubstr("notes.txt"));
  EXPECT_THAT(base::Message(RestoreBackup(file_, state_).status()),
              HasSubstr("there is one already"));
  fs::remove(restored_ + "/notes.txt");
  fs::create_directories(restored_ + "/lost+found");
  Put(restored_ + "/restore.tmp/coordinator.db", "of one that was interrupted");
  EXPECT_TRUE(RestoreBackup(file_, restored_).ok());
  EXPECT_TRUE(SqliteStore::Open(restored_).ok());
}

TEST(Tar, HeadersAreReadAsTheyWereWritten) {
  for (const int64_t size :
       {int64_t{0}, int64_t{511}, int64_t{1} << 32, int64_t{1} << 33, int64_t{5} << 40}) {
    const auto header = TarHeader({.name = "history/abc.steps", .size = size, .time_s = 1'700'000});
    ASSERT_TRUE(header.ok());
    ASSERT_EQ(header->size(), kTarBlock);
    const auto entry = ParseTarHeader(*header);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->name, "history/abc.steps");
    EXPECT_EQ((*entry)->size, size);
    EXPECT_EQ((*entry)->time_s, 1'700'000);
    EXPECT_EQ((static_cast<size_t>(size) + TarPadding(size)) % kTarBlock, 0U);
  }
  EXPECT_FALSE(ParseTarHeader(TarEnd().substr(0, kTarBlock))->has_value());
  EXPECT_TRUE(TarHeader({.name = std::string(100, 'n')}).ok());
  EXPECT_FALSE(TarHeader({.name = std::string(101, 'n')}).ok());
}

}  // namespace
}  // namespace mt::daemon
