// Stop and resume with all three axes in use: a rank is killed with everything it holds, in half
// precision, with sharded optimizer state and a changing loss scale, and the resumed run is
// bit-equal.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"
#include "tests/worker/parity/processes.h"

namespace mt::parity {
namespace {

using nlohmann::json;

std::vector<json> RecordsOf(const std::string& lines, std::string_view kind) {
  std::istringstream in(lines);
  std::vector<json> records;
  for (std::string line; std::getline(in, line);) {
    json record = json::parse(line, nullptr, false);
    if (record.is_object() && record["kind"] == kind) records.push_back(std::move(record));
  }
  return records;
}

class KilledCubeTest : public testing::Test {
 protected:
  // A save after step 10. The scale doubles after 7 clean steps, so the save lies between two
  // doublings: a counter that was lost would show at step 14.
  ProcessArgs Args(const std::string& directory, const std::string& run) const {
    std::vector<std::string> fields =
        OverridesOf({.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero_stage = 1});
    fields.insert(fields.end(), {"training.precision=fp16", "training.loss_scale.initial=4096",
                                 "training.loss_scale.window=7", "training.global_batch_size=32",
                                 "checkpoint.every_iters=10", "checkpoint.directory=" + directory});
    return {.job_file = base::JoinPath(runner_.root(), "job.yaml"),
            .overrides = fields,
            .world = 8,
            .root = runner_.root(),
            .prefix = base::JoinPath(runner_.root(), run)};
  }
  void SetUp() override {
    ASSERT_TRUE(
        base::WriteFileAtomic(base::JoinPath(runner_.root(), "job.yaml"), JobText(Family::kGpt2))
            .ok());
  }
  std::string RunToEnd(const ProcessArgs& args) {
    RankProcesses ranks(args);
    EXPECT_EQ(ranks.Wait(), 0) << ranks.Errors();
    return ranks.Metrics();
  }
  // Trains until the first save is complete, then kills one rank.
  std::string RunAndKill(const ProcessArgs& args) {
    using std::chrono::steady_clock;
    RankProcesses ranks(args);
    const auto deadline = steady_clock::now() + std::chrono::seconds(120);
    while (RecordsOf(ranks.Metrics(), "checkpoint").empty() && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const std::vector<pid_t> members = ranks.Members();
    EXPECT_EQ(members.size(), 8U) << ranks.Errors();
    if (members.size() == 8) ::kill(members[5], SIGKILL);
    EXPECT_EQ(ranks.Wait(), 128 + SIGKILL) << ranks.Errors();
    return ranks.Metrics();
  }

  Runner runner_;
};

TEST_F(KilledCubeTest, TenStepsAndTenMoreAreTwentyToTheLastBit) {
  const std::string straight = RunToEnd(Args("straight", "straight"));
  const std::string killed = RunAndKill(Args("killed", "killed"));
  const std::string resumed = RunToEnd(Args("killed", "resumed"));
  EXPECT_EQ(RecordsOf(resumed, "run").at(0)["resumed_from_step"], 10);

  const std::vector<json> want = RecordsOf(straight, "step");
  const std::vector<json> before = RecordsOf(killed, "step");
  const std::vector<json> after = RecordsOf(resumed, "step");
  ASSERT_EQ(want.size(), 20U);
  ASSERT_EQ(after.size(), 10U);
  ASSERT_GE(before.size(), 10U);
  for (size_t i = 0; i < 20; ++i) {
    const json& got = i < 10 ? before[i] : after[i - 10];
    for (const char* field : {"step", "loss", "grad_norm", "learning_rate", "loss_scale",
                              "consumed_samples", "skipped_steps"}) {
      ASSERT_TRUE(want[i].contains(field)) << field;
      EXPECT_EQ(got[field], want[i][field]) << field << " of step " << i + 1;
    }
  }
  EXPECT_EQ(want[5]["loss_scale"], 4096.0);
  EXPECT_EQ(want[6]["loss_scale"], 8192.0);
  EXPECT_EQ(want[13]["loss_scale"], 16384.0);
  EXPECT_TRUE(CurveOfLines(resumed).evals.back() == CurveOfLines(straight).evals.back());
}

}  // namespace
}  // namespace mt::parity
