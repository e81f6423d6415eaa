// The records of a rank, written by the shim's own code and read as the next agent reads them:
// after a crash that loses whatever was not synced each is whole or not there, and surely there
// once it is written. A record in parts would make the agent look for the rank by its command line.
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/common/base/crash_log.h"
#include "worker/node/ranks/rank_record.h"
#include "worker/node/shim/record.h"

namespace mt::node {
namespace {

constexpr int kExitCode = 74;

enum class Presence { kMaybe, kSurely };

// What is wrong with a record that was read: of `right`, that its values are what was written.
template <class Record>
std::string WrongIn(const StatusOr<Record>& record, bool right, Presence presence) {
  if (record.ok()) return right ? "" : "there are other values in it";
  if (presence == Presence::kMaybe && absl::IsNotFound(record.status())) return "";
  return base::Message(record.status());
}

std::string WrongIn(const std::string& folder, Presence rank, Presence exit) {
  const auto who = ReadRankRecord(folder);
  const auto how = ReadExitRecord(folder);
  const std::string wrong =
      WrongIn(who, who.ok() && who->pid == ::getpid() && who->boot_id == base::BootId(), rank);
  return wrong.empty() ? WrongIn(how, how.ok() && how->code == kExitCode, exit) : wrong;
}

TEST(ShimDurabilityTest, ARecordIsWholeOrNotThereAndSurelyThereOnceItIsWritten) {
  const std::string top =
      std::filesystem::canonical(std::filesystem::temp_directory_path()).string() +
      "/mt-durable-shim-" + base::RandomHex(6);
  const std::string folder = top + "/disk";
  std::filesystem::create_directories(folder);
  ShimOptions options;
  options.dir = folder.c_str();
  options.job_uid = "job-a";
  options.epoch = 2;
  options.rank = 0;
  options.slot = 0;
  ExitRecord ended;
  ended.wait_status = kExitCode << 8;
  crash::CrashLog log(folder);
  ASSERT_TRUE(WriteRankRecord(options, ::getpid()));
  log.Mark("runs");
  ASSERT_TRUE(WriteExitRecord(options, ended));
  log.Mark("ended");
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  const auto expect = [&](size_t from, size_t to, Presence rank, Presence exit) {
    const std::string complaint =
        log.FirstComplaint(from, to, top + "/after",
                           [&](const std::string& left) { return WrongIn(left, rank, exit); });
    EXPECT_TRUE(complaint.empty()) << complaint;
  };
  expect(0, log.Before("runs"), Presence::kMaybe, Presence::kMaybe);
  expect(log.Before("runs"), log.Before("ended"), Presence::kSurely, Presence::kMaybe);
  expect(log.Before("ended"), log.operations().size(), Presence::kSurely, Presence::kSurely);
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace mt::node
