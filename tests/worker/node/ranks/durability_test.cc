// The records that an agent writes before it acts on them survive a crash that loses whatever was
// not synced, in a state folder that it has just made; an older record is never mixed with a newer.
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "megatrain/v1/agent_state.pb.h"
#include "tests/common/base/crash_log.h"
#include "worker/node/ranks/allocation_dir.h"
#include "worker/node/ranks/allocation_record.h"
#include "worker/node/ranks/state_dir.h"

namespace mt::node {
namespace {

using crash::CrashLog;
using megatrain::v1::AllocationRecord;

class AgentDurabilityTest : public testing::Test {
 protected:
  void SetUp() override {
    top_ = std::filesystem::canonical(std::filesystem::temp_directory_path()).string() +
           "/mt-durable-agent-" + base::RandomHex(6);
    std::filesystem::create_directories(top_ + "/disk");
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  static std::unique_ptr<AllocationRecord> Record(const std::string& job, int64_t epoch) {
    megatrain::v1::Assign assign;
    assign.set_job_uid(job);
    assign.set_epoch(epoch);
    assign.mutable_spec()->set_name("demo");
    for (int rank = 0; rank < 2; ++rank) assign.add_ranks()->set_rank(rank);
    return NewRecord(assign, "/logs", SlotTable({}, 8));
  }

  // What is wrong where the records must be one of each: "" stands for no record.
  static std::string Complaint(const std::string& folder, const std::set<std::string>& texts) {
    const std::string allocations = folder + "/state/allocations";
    std::string text;
    for (const AllocationDir::Found& found : AllocationDir(allocations).LoadAll()) {
      // A folder without a record: nothing was begun in it.
      if (!base::Exists(allocations + "/job-a-e0002/allocation.bin")) continue;
      if (!found.damage.empty()) return found.damage;
      text = found.record->SerializeAsString();
    }
    if (texts.contains(text)) return "";
    return text.empty() ? "there is no record" : "there is another record";
  }

  std::string top_;
};

TEST_F(AgentDurabilityTest, ARecordIsOldOrNewAndSurelyThereOnceItIsSaved) {
  CrashLog log(top_ + "/disk");
  const auto state = StateDir::Open(top_ + "/disk/state");
  ASSERT_TRUE(state.ok()) << state.status();
  AllocationDir store(state->allocations());
  const auto record = Record("job-a", 2);
  const std::string first = record->SerializeAsString();
  ASSERT_TRUE(store.Save(*record).ok());
  log.Mark("first");
  record->set_end_reason("over");
  const std::string second = record->SerializeAsString();
  ASSERT_TRUE(store.Save(*record).ok());
  log.Mark("second");
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  const auto expect = [&](size_t from, size_t to, const std::set<std::string>& texts) {
    const std::string complaint = log.FirstComplaint(
        from, to, top_ + "/after", [&](const std::string& left) { return Complaint(left, texts); });
    EXPECT_TRUE(complaint.empty()) << complaint;
  };
  expect(0, log.Before("first"), {"", first});
  expect(log.Before("first"), log.Before("second"), {first, second});
  expect(log.Before("second"), log.operations().size(), {second});
}

}  // namespace
}  // namespace mt::node
