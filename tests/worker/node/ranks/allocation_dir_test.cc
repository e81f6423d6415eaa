// The records on disk that one agent leaves to the next: complete, private, and reported as damaged
// if anything in them is.
#include "worker/node/ranks/allocation_dir.h"

#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "megatrain/v1/agent_state.pb.h"
#include "worker/node/ranks/allocation_record.h"

namespace mt::node {
namespace {

class AllocationDirTest : public testing::Test {
 protected:
  AllocationDirTest() {
    char pattern[] = "/tmp/mt-allocations-XXXXXX";
    dir_ = mkdtemp(pattern);
  }
  ~AllocationDirTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<megatrain::v1::AllocationRecord> Record(const std::string& job, int64_t epoch) {
    megatrain::v1::Assign assign;
    assign.set_job_uid(job);
    assign.set_epoch(epoch);
    assign.mutable_spec()->set_name("demo");
    for (int rank = 0; rank < 2; ++rank) assign.add_ranks()->set_rank(rank);
    return NewRecord(assign, "/logs", SlotTable({}, 8));
  }
  std::string File(const std::string& folder) const {
    return dir_ + "/" + folder + "/allocation.bin";
  }

  std::string dir_;
};

TEST_F(AllocationDirTest, KeepsRecordsAndTheirSecrets) {
  AllocationDir store(dir_);
  const auto first = Record("job-a", 2);
  EXPECT_NE(first->ranks(0).token(), first->ranks(1).token());
  ASSERT_TRUE(store.Save(*first).ok());
  ASSERT_TRUE(store.Save(*Record("job-b", 1)).ok());
  struct stat info {};
  ASSERT_EQ(::stat(File("job-a-e0002").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((dir_ + "/job-a-e0002").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  first->set_end_reason("over");
  ASSERT_TRUE(store.Save(*first).ok());
  const auto found = AllocationDir(dir_).LoadAll();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].damage, "");
  EXPECT_EQ(found[0].record->SerializeAsString(), first->SerializeAsString());
  EXPECT_EQ(found[1].record->assign().job_uid(), "job-b");
  EXPECT_EQ(found[1].record->ranks(1).log_file(), "/logs/demo-job-b/rank-00001.log");

  store.Remove("job-a", 2);
  EXPECT_EQ(AllocationDir(dir_).LoadAll().size(), 1u);
  EXPECT_FALSE(base::Exists(dir_ + "/job-a-e0002"));
}

TEST_F(AllocationDirTest, DamagedRecordsTellWhatNamesTell) {
  AllocationDir store(dir_);
  ASSERT_TRUE(store.Save(*Record("job-a", 2)).ok());
  ASSERT_TRUE(base::MakeDirs(dir_ + "/job-a-e0002/rank-00003").ok());
  ASSERT_TRUE(base::MakeDirs(dir_ + "/job-a-e0002/rank-00001").ok());
  ASSERT_TRUE(base::MakeDirs(dir_ + "/job-a-e0002/rank-00002.void").ok());
  const std::string whole = base::ReadFile(File("job-a-e0002")).value();
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 0x10;
  for (const std::string& bytes :
       {std::string(), whole.substr(0, 7), whole.substr(0, whole.size() - 1), flipped,
        std::string(whole.size(), '\0'), whole + "x"}) {
    ASSERT_TRUE(base::WriteFileAtomic(File("job-a-e0002"), bytes).ok());
    const auto found = store.LoadAll();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_NE(found[0].damage.find("allocation.bin: damaged"), std::string::npos)
        << found[0].damage;
    EXPECT_EQ(found[0].record->assign().job_uid(), "job-a");
    EXPECT_EQ(found[0].record->assign().epoch(), 2);
    ASSERT_EQ(found[0].record->ranks_size(), 2);
    EXPECT_EQ(found[0].record->ranks(0).rank(), 1);
    EXPECT_EQ(found[0].record->ranks(1).rank(), 3);
    EXPECT_EQ(found[0].record->ranks(0).token(), "");
  }
  std::filesystem::remove(File("job-a-e0002"));
  EXPECT_NE(store.LoadAll().at(0).damage, "");
}

TEST_F(AllocationDirTest, ARecordInTheWrongFolderIsNotBelieved) {
  AllocationDir store(dir_);
  ASSERT_TRUE(store.Save(*Record("job-a", 2)).ok());
  std::filesystem::rename(dir_ + "/job-a-e0002", dir_ + "/job-a-e0003");
  const auto found = store.LoadAll();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].damage.find("is of job job-a epoch 2"), std::string::npos);
  EXPECT_EQ(found[0].record->assign().epoch(), 3);
}

TEST_F(AllocationDirTest, FoldersOfOthersAreLeftAlone) {
  for (const char* name : {"notes", "job-e", "job-e1x", "-e0001", "job_1-e0001", "job-e-1"}) {
    ASSERT_TRUE(base::MakeDirs(dir_ + "/" + name).ok());
  }
  EXPECT_TRUE(AllocationDir(dir_).LoadAll().empty());
  EXPECT_TRUE(base::Exists(dir_ + "/notes"));
}

}  // namespace
}  // namespace mt::node
