// The worker's Prometheus series: values of ranks, the bound on their number, when they appear and
// disappear, and that METRICS.md lists all of them.
#include "worker/node/agent/worker_metrics.h"

#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/paths.h"
#include "tests/worker/node/agent/agent_rig.h"
#include "worker/node/agent/rank_series.h"
#include "worker/node/agent/storage_watch.h"
#include "worker/node/ranks/allocation_record.h"

namespace mt::node {
namespace {

using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::RankTelemetry;

class WorkerMetricsTest : public AgentTest {
 protected:
  std::string Text() const { return registry_->Text(); }
  // The value of the one series that begins with `name` and has all of `parts`; "" if none.
  std::string Value(const std::string& name, const std::vector<std::string>& parts = {}) const {
    std::istringstream lines(Text());
    std::string found;
    for (std::string line; std::getline(lines, line);) {
      bool fits = line.rfind(name + "{", 0) == 0 || line.rfind(name + " ", 0) == 0;
      for (const std::string& part : parts) fits = fits && line.find(part) != std::string::npos;
      if (!fits) continue;
      EXPECT_EQ(found, "") << "more than one " << name;
      found = line.substr(line.rfind(' ') + 1);
    }
    return found;
  }
  int NumSeries(const std::string& part) const {
    std::istringstream lines(Text());
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      count += line.rfind("mt_", 0) == 0 && line.find(part) != std::string::npos ? 1 : 0;
    }
    return count;
  }
  void Beat(int rank, int64_t step, const RankTelemetry& telemetry) {
    RankMessage message;
    message.mutable_beat()->set_step(step);
    *message.mutable_beat()->mutable_telemetry() = telemetry;
    ranks_.Say(100 + rank, message);
  }
  static RankTelemetry SomeTelemetry() {
    RankTelemetry telemetry;
    telemetry.set_tokens(4096);
    (*telemetry.mutable_phase_seconds())["forward"] = 1.5;
    (*telemetry.mutable_phase_seconds())["tuning"] = 0.25;
    (*telemetry.mutable_memory_bytes())["weights"] = 1000;
    telemetry.set_host_memory_bytes(5000);
    telemetry.set_comm_init_seconds(0.5);
    auto& reduce = *telemetry.add_collectives();
    reduce.set_op("all_reduce");
    reduce.set_group("dp");
    reduce.set_calls(7);
    reduce.set_bytes(1 << 20);
    reduce.set_seconds(2.5);
    telemetry.add_recent_step_seconds(0.3);
    telemetry.add_recent_step_seconds(3);
    return telemetry;
  }
};

TEST_F(WorkerMetricsTest, CountersStartAtZeroWithTheRank) {
  EXPECT_EQ(NumSeries("mt_job="), 0);
  Assign(2);
  for (const char* rank : {"rank=\"0\"", "rank=\"1\""}) {
    EXPECT_EQ(Value("mt_tokens_total", {rank}), "0");
    EXPECT_EQ(Value("mt_step", {rank}), "0");
    EXPECT_EQ(Value("mt_step_duration_seconds_count", {rank}), "0");
    for (const char* phase : {"data", "forward", "backward", "tp_comm", "pp_wait", "dp_comm",
                              "optimizer", "ckpt", "other"}) {
      EXPECT_EQ(Value("mt_step_phase_seconds_total", {rank, fmt::format("phase=\"{}\"", phase)}),
                "0");
    }
  }
  EXPECT_EQ(
      Value("mt_rank_info", {"rank=\"1\"", "dp=\"1\"", "tp=\"0\"", "slot=\"1\"", "mt_job=\"demo\"",
                             "mt_namespace=\"default\"", "node=\"node-a\"", "device=\"cpu\""}),
      "1");
}

TEST_F(WorkerMetricsTest, ShowsWhatBeatsTell) {
  StartJob(1);
  Beat(0, 12, SomeTelemetry());
  EXPECT_EQ(Value("mt_step"), "12");
  EXPECT_EQ(Value("mt_tokens_total"), "4096");
  EXPECT_EQ(Value("mt_step_phase_seconds_total", {"phase=\"forward\""}), "1.5");
  EXPECT_EQ(Value("mt_step_phase_seconds_total", {"phase=\"other\""}), "0.25");
  EXPECT_EQ(Value("mt_rank_memory_bytes", {"kind=\"weights\""}), "1000");
  EXPECT_EQ(Value("mt_host_memory_bytes"), "5000");
  EXPECT_EQ(Value("mt_comm_init_seconds"), "0.5");
  EXPECT_EQ(Value("mt_collective_calls_total", {"op=\"all_reduce\"", "group=\"dp\""}), "7");
  EXPECT_EQ(Value("mt_collective_bytes_total"), "1048576");
  EXPECT_EQ(Value("mt_collective_seconds_total"), "2.5");
  EXPECT_EQ(Value("mt_step_duration_seconds_count"), "2");
  EXPECT_EQ(Value("mt_step_duration_seconds_bucket", {"le=\"0.5\""}), "1");
  Beat(0, 11, SomeTelemetry());  // counters never decrease; the same total adds nothing
  EXPECT_EQ(Value("mt_step"), "12");
  EXPECT_EQ(Value("mt_tokens_total"), "4096");
  RankMessage held;  // the step of a held rank is known with its state, before the next beat
  held.mutable_state()->set_state(RankState::HELD);
  held.mutable_state()->set_step(13);
  ranks_.Say(100, held);
  EXPECT_EQ(Value("mt_step"), "13");
}

TEST_F(WorkerMetricsTest, NoRankHasMoreSeriesThanTheBudget) {
  StartJob(2);
  RankTelemetry hostile;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = fmt::format("n{}\"\\\n", i);
    (*hostile.mutable_phase_seconds())[name] = 1;
    (*hostile.mutable_memory_bytes())[name] = 1;
    auto& count = *hostile.add_collectives();
    count.set_op(name);
    count.set_group(name);
    count.set_calls(1);
  }
  hostile.set_tokens(-5);
  (*hostile.mutable_phase_seconds())["data"] = std::numeric_limits<double>::quiet_NaN();
  (*hostile.mutable_phase_seconds())["ckpt"] = -1;
  hostile.add_recent_step_seconds(std::numeric_limits<double>::infinity());
  for (int beat = 0; beat < 3; ++beat) Beat(0, beat, hostile);
  EXPECT_LE(NumSeries("rank=\"0\""), WorkerMetrics::kMaxSeriesPerRank);
  EXPECT_GE(NumSeries("rank=\"0\""), 100);  // the bound was reached
  EXPECT_EQ(Value("mt_tokens_total", {"rank=\"0\""}), "0");
  EXPECT_EQ(Value("mt_step_phase_seconds_total", {"rank=\"0\"", "phase=\"data\""}), "0");
  EXPECT_EQ(Value("mt_step_phase_seconds_total", {"rank=\"0\"", "phase=\"other\""}), "1000");
  EXPECT_EQ(Value("mt_collective_calls_total", {"rank=\"0\"", "op=\"other\""}),
            std::to_string(1000 - (RankSeries::kMaxCollectives - 1)));
  EXPECT_EQ(Value("mt_rank_memory_bytes", {"rank=\"0\"", "kind=\"other\""}),
            std::to_string(1000 - (RankSeries::kMaxMemoryKinds - 1)));
}

TEST_F(WorkerMetricsTest, SeriesGoFiveMinutesAfterTheEnd) {
  StartJob(1);
  EndRank(0, {.code = 0});
  loop_.Advance(std::chrono::seconds(299));
  EXPECT_EQ(Value("mt_step"), "0");
  loop_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(NumSeries("mt_job="), 0);
}

TEST_F(WorkerMetricsTest, ANewEpochTakesThePlaceOfTheOld) {
  StartJob(1);
  Beat(0, 12, SomeTelemetry());
  EndRank(0, {.code = 75});
  coordinator_.Say(AssignMessage(2, 2));
  EXPECT_EQ(Value("mt_tokens_total", {"rank=\"0\""}), "0");
  EXPECT_EQ(Value("mt_tokens_total", {"rank=\"1\""}), "0");
  loop_.Advance(
      std::chrono::minutes(6));  // the end of the old epoch removes no series of the new one
  EXPECT_EQ(Value("mt_tokens_total", {"rank=\"0\""}), "0");
}

TEST_F(WorkerMetricsTest, AdoptedRanksAreShown) {
  StartJob(1);
  RestartAgent();
  EXPECT_EQ(Value("mt_tokens_total", {"rank=\"0\""}), "0");
}

TEST_F(WorkerMetricsTest, PlacesRanksInTheMesh) {
  auto message = AssignMessage(4);
  message.mutable_assign()->mutable_spec()->mutable_parallel()->set_tensor(2);
  message.mutable_assign()->set_world_size(8);
  message.mutable_assign()->mutable_spec()->mutable_parallel()->set_pipeline(2);
  message.mutable_assign()->mutable_ranks(0)->set_rank(7);
  coordinator_.Say(message);
  EXPECT_EQ(Value("mt_rank_info", {"rank=\"7\"", "tp=\"1\"", "dp=\"1\"", "pp=\"1\"", "cp=\"0\""}),
            "1");
  EXPECT_EQ(Value("mt_rank_info", {"rank=\"2\"", "tp=\"0\"", "dp=\"1\"", "pp=\"0\""}), "1");
  // Each series carries the rank's coordinates.
  EXPECT_EQ(Value("mt_tokens_total", {"rank=\"7\"", "tp=\"1\"", "dp=\"1\"", "pp=\"1\""}), "0");
  EXPECT_EQ(Value("mt_step_phase_seconds_total",
                  {"rank=\"2\"", "phase=\"pp_wait\"", "tp=\"0\"", "dp=\"1\"", "pp=\"0\""}),
            "0");
  // Parallel sizes that do not divide the world size are accepted.
  message.mutable_assign()->set_job_uid("job-uid-2");
  message.mutable_assign()->mutable_spec()->set_name("other");
  message.mutable_assign()->mutable_spec()->mutable_parallel()->set_tensor(1'000'000'000);
  metrics_->OnJob(*NewRecord(message.assign(), dir_, SlotTable({}, 8)));
  EXPECT_EQ(Value("mt_rank_info", {"mt_job=\"other\"", "rank=\"7\"", "dp=\"7\""}), "1");
}

TEST_F(WorkerMetricsTest, MeasuresHeartbeats) {
  megatrain::v1::CoordinatorMessage ack;
  ack.mutable_heartbeat_ack()->set_beat(1);
  clock_.Advance(std::chrono::milliseconds(50));
  coordinator_.Say(ack);
  EXPECT_EQ(Value("mt_heartbeat_rtt_seconds_bucket", {"le=\"0.02\""}), "0");
  EXPECT_EQ(Value("mt_heartbeat_rtt_seconds_bucket", {"le=\"0.1\""}), "1");
  coordinator_.Break("cut");
  EXPECT_EQ(Value("mt_worker_disconnects_total"), "1");
}

TEST_F(WorkerMetricsTest, MeasuresFreeSpace) {
  const StorageWatch watch({{"state", dir_}, {"data", dir_ + "/missing"}}, {{"node", "node-a"}},
                           registry_.get(), std::chrono::milliseconds(5));
  while (Value("mt_storage_free_bytes", {"root=\"state\""}) == "0") {
  }
  EXPECT_GT(std::stod(Value("mt_storage_free_bytes", {"root=\"state\""})), 1e6);
  EXPECT_EQ(Value("mt_storage_free_bytes", {"root=\"data\""}), "0");
}

// METRICS.md has one row per family, with its type; the program exports no other.
TEST_F(WorkerMetricsTest, ThePageTellsAllNames) {
  StartJob(1);
  Beat(0, 1, SomeTelemetry());
  const StorageWatch watch({{"state", dir_}}, {{"node", "node-a"}}, registry_.get());
  const std::string page = base::ReadFile(MT_SOURCE_DIR "/worker/node/agent/METRICS.md").value();
  std::set<std::string> told;
  const std::regex row(R"(\| `(mt_[a-z_]+)` \| ([a-z]+) \|)");
  for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at) {
    EXPECT_TRUE(told.insert((*at)[2].str() + " " + (*at)[1].str()).second) << (*at)[1].str();
  }
  std::set<std::string> shown;
  const std::string text = Text();
  const std::regex type(R"(# TYPE (mt_[a-z_]+) ([a-z]+))");
  for (std::sregex_iterator at(text.begin(), text.end(), type), end; at != end; ++at) {
    shown.insert((*at)[2].str() + " " + (*at)[1].str());
  }
  EXPECT_EQ(told, shown);
}

}  // namespace
}  // namespace mt::node
