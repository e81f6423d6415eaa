// The parts of a rank that need no trainer: exit codes, commands, rendezvous, leaving, the metrics
// file, the environment.
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mutex.h"
#include "common/rpc/reason.h"
#include "kernels/cpu/cpu_backend.h"
#include "megatrain/v1/rank.pb.h"
#include "tests/worker/data/temp_data.h"
#include "worker/comm/host_identity.h"
#include "worker/comm/threads/hub.h"
#include "worker/failure/failure.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/rank/channel_store.h"
#include "worker/rank/check_blas.h"
#include "worker/rank/command_queue.h"
#include "worker/rank/environment.h"
#include "worker/rank/epoch_queries.h"
#include "worker/rank/leave_switch.h"
#include "worker/rank/metrics_file.h"
#include "worker/rank/outcome.h"

namespace mt::rank {
namespace {

using megatrain::v1::RankMessage;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(OutcomeTest, ExitCodes) {
  EXPECT_EQ(ExitCodeOf(OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(base::InvalidArgument("x")), 64);
  EXPECT_EQ(ExitCodeOf(base::DataLoss("x")), 73);
  EXPECT_EQ(ExitCodeOf(base::Unavailable("x")), 75);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("x")), 75);
  EXPECT_EQ(ExitCodeOf(base::Internal("x")), 70);
  EXPECT_EQ(ExitCodeOf(failure::WithCause(base::Internal("x"), failure::Cause::kHardware)), 71);
  EXPECT_EQ(ExitCodeOf(failure::WithCause(base::Internal("x"), failure::Cause::kNumeric)), 74);
  EXPECT_EQ(ProtoCauseOf(base::Unavailable("x")), megatrain::v1::NETWORK);
  // A save under `strict`, which is no load, and memory, which the cause alone tells from a
  // mistake.
  const Status saved = rpc::WithReason(base::DataLoss("x"), rpc::reason::kSaveFailed);
  EXPECT_EQ(ExitCodeOf(saved), 76);
  EXPECT_EQ(ProtoCauseOf(saved), megatrain::v1::STORAGE);
  const Status memory = failure::WithCause(base::Internal("x"), failure::Cause::kOutOfMemory);
  EXPECT_EQ(ExitCodeOf(memory), 64);
  EXPECT_EQ(ProtoCauseOf(memory), megatrain::v1::OOM);
}

TEST(BlasVerdictTest, ThisMachinesIsRightAndAWrongOneIsToldWithTheWayOut) {
  EXPECT_TRUE(BlasVerdict().ok());
  kernels::cpu::BlasCalls wrong;
  wrong.f32 = [](const kernels::cpu::GemmArgs<float>& args) {
    kernels::cpu::Gemm(args);
    args.c[0] += 1;
  };
  const Status verdict = BlasVerdict(wrong);
  EXPECT_EQ(ExitCodeOf(verdict), 71);
  for (const char* const part :
       {"OpenBLAS", "multiplies wrongly", "sgemm m 1, n 1, k 1", "OPENBLAS_CORETYPE="})
    EXPECT_NE(base::Message(verdict).find(part), std::string::npos) << verdict;
}

TEST(CommandQueueTest, KeepsOrderAndIgnoresRepetitions) {
  CommandQueue commands;
  EXPECT_FALSE(commands.Poll().has_value());
  commands.Push({.kind = train::CommandKind::kCheckpointNow, .id = "a"});
  commands.Push({.kind = train::CommandKind::kStopWithSave, .id = "b"});
  commands.Push({.kind = train::CommandKind::kCheckpointNow, .id = "a"});
  EXPECT_EQ(commands.Poll()->id, "a");
  EXPECT_EQ(commands.Poll()->id, "b");
  commands.Push({.kind = train::CommandKind::kStopWithSave, .id = "b"});
  EXPECT_FALSE(commands.Poll().has_value());
}

TEST(ChannelStoreTest, WaitsForTheValue) {
  std::atomic<int> asked = 0;
  ChannelStore store([&asked](const RankMessage& message) {
    asked += message.has_rendezvous_get() && message.rendezvous_get().key() == "k";
  });
  std::thread agent([&store, &asked] {
    while (asked == 0) std::this_thread::yield();
    store.OnValue("other", "x");
    store.OnValue("k", "value");
  });
  const auto value = store.Get("k", base::Clock::Real()->Now() + seconds(60));
  agent.join();
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, "value");
}

// An agent may die with what a rank has set before it reached the coordinator.
TEST(ChannelStoreTest, SaysAgainOnANewStreamWhatItHasSetAndWaitsFor) {
  std::atomic<int> asked = 0;
  std::atomic<int> told = 0;
  ChannelStore store([&asked, &told](const RankMessage& message) {
    if (message.has_rendezvous_get()) {
      EXPECT_EQ(message.rendezvous_get().key(), "k");
      ++asked;
    }
    if (!message.has_rendezvous_set()) return;
    EXPECT_EQ(message.rendezvous_set().key(), "mine");
    EXPECT_EQ(message.rendezvous_set().value(), "here");
    ++told;
  });
  store.OnAttached();
  ASSERT_TRUE(store.Set("mine", "here").ok());
  std::thread agent([&store, &asked, &told] {
    while (asked == 0) std::this_thread::yield();
    EXPECT_EQ(told, 1);
    store.OnAttached();
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(told, 2);
    store.OnValue("k", "value");
  });
  const auto value = store.Get("k", base::Clock::Real()->Now() + seconds(60));
  agent.join();
  ASSERT_TRUE(value.ok()) << value.status();
  store.OnAttached();
  EXPECT_EQ(asked, 2) << "nothing is awaited any more";
  EXPECT_EQ(told, 3) << "peers may still need it";
}

TEST(ChannelStoreTest, EndsItsWaits) {
  ChannelStore store([](const RankMessage&) {});
  EXPECT_TRUE(absl::IsDeadlineExceeded(store.Get("k", base::Clock::Real()->Now()).status()));
  store.Abort("rank 1 failed");
  const auto value = store.Get("k", base::Clock::Real()->Now() + seconds(60));
  EXPECT_TRUE(absl::IsAborted(value.status()));
  EXPECT_NE(base::Message(value.status()).find("rank 1 failed"), std::string::npos);
}

TEST(EpochQueriesTest, TakesTheAnswerToItsOwnQuestionOnly) {
  std::atomic<int64_t> asked = 0;
  EpochQueries queries([&asked](const RankMessage& message) {
    EXPECT_TRUE(message.has_epoch_query());
    asked = message.epoch_query().query_id();
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(queries.IsOpen(seconds(0)).status()));
  const int64_t lost = asked;
  std::thread agent([&] {
    while (asked == lost) std::this_thread::yield();
    queries.OnAnswer(lost, true);  // late
    queries.OnAnswer(asked, false);
  });
  const auto open = queries.IsOpen(seconds(60));
  agent.join();
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_FALSE(*open);
  std::thread next([&, before = asked.load()] {
    while (asked == before) std::this_thread::yield();
    queries.OnAnswer(asked, true);
  });
  EXPECT_TRUE(*queries.IsOpen(seconds(60)));
  next.join();
  queries.Abort();
  EXPECT_TRUE(absl::IsAborted(queries.IsOpen(seconds(60)).status()));
}

TEST(LeaveSwitchTest, EndsTheProcessOnlyWhereTheRankDoesNotLeave) {
  std::atomic<int> ended = 0;
  {
    const LeaveSwitch unused(milliseconds(0), [&ended] { ++ended; });
  }
  {
    LeaveSwitch in_time(std::chrono::hours(1), [&ended] { ++ended; });
    in_time.Leave("x");
  }
  EXPECT_EQ(ended, 0);
  LeaveSwitch stuck(milliseconds(1), [&ended] { ++ended; });
  stuck.Leave("x");
  while (ended == 0) std::this_thread::yield();
}

// A group whose end waits for a device that answers no more, until it is let go.
class StuckGroup final : public comm::ProcessGroup {
 public:
  StuckGroup(comm::GroupSpec spec, std::atomic<bool>* let_go, std::atomic<int>* num_stuck)
      : ProcessGroup(std::move(spec), {}), let_go_(let_go), num_stuck_(num_stuck) {}

 private:
  Status DoCall(kernels::Stream&, const Call&, base::MonotonicTime) override { return OkStatus(); }
  void OnBroken() override {
    ++*num_stuck_;
    while (!*let_go_) std::this_thread::yield();
  }

  std::atomic<bool>* const let_go_;
  std::atomic<int>* const num_stuck_;
};

struct StuckFactory final : comm::GroupFactory {
  StatusOr<std::unique_ptr<comm::ProcessGroup>> Create(comm::GroupSpec spec) override {
    return std::make_unique<StuckGroup>(std::move(spec), &let_go, &num_stuck);
  }
  std::atomic<bool> let_go = false;
  std::atomic<int> num_stuck = 0;
};

TEST(LeaveSwitchTest, AnAbortThatWaitsForTheDeviceDoesNotHoldTheLimitUp) {
  StuckFactory factory;
  const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
  const auto groups =
      parallel::RankGroups::Create({.mesh = layout::Mesh::Create({.tp = 1, .dp = 2}).value(),
                                    .rank = 0,
                                    .factory = &factory,
                                    .device = &backend->device()})
          .value();
  std::atomic<int> ended = 0;
  LeaveSwitch leave(milliseconds(1), [&ended] { ++ended; });
  leave.SetGroups(groups.get());
  std::thread asked([&leave] { leave.Leave("the job has failed"); });
  // The limit begins before the abort does.
  while (ended == 0 || factory.num_stuck == 0) std::this_thread::yield();
  EXPECT_EQ(factory.num_stuck, 1) << "it is in the abort of its first group";
  // The groups are not destroyed under the abort.
  std::atomic<bool> free = false;
  std::thread destroys([&] {
    leave.SetGroups(nullptr);
    free = true;
  });
  EXPECT_FALSE(free);
  factory.let_go = true;
  destroys.join();
  asked.join();
  EXPECT_GT(factory.num_stuck, 1) << "all of them were aborted";
}

// It ends its groups itself: nothing is aborted, and the limit has begun.
TEST(LeaveSwitchTest, ARankThatHasFailedByItselfHasTheLimitOnly) {
  std::atomic<int> ended = 0;
  LeaveSwitch leave(milliseconds(1), [&ended] { ++ended; });
  leave.Expect();
  while (ended == 0) std::this_thread::yield();
}

// Two ranks wait for each other in different groups; one is told to leave.
TEST(LeaveSwitchTest, BreaksEveryGroupOfTheRank) {
  comm::ThreadsHub hub(comm::CommConfig{.op_timeout = seconds(60)});
  LeaveSwitch leave(std::chrono::hours(1), [] {});
  std::atomic<int> ready = 0;
  const auto rank = [&](int world_rank) {
    const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
    const auto groups =
        parallel::RankGroups::Create({.mesh = layout::Mesh::Create({.tp = 1, .dp = 2}).value(),
                                      .rank = world_rank,
                                      .factory = &hub,
                                      .device = &backend->device()})
            .value();
    const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
    if (world_rank == 0) leave.SetGroups(groups.get());
    ++ready;
    comm::ProcessGroup* const group = world_rank == 0 ? groups->world() : groups->dp_gather();
    const Status ended = group->Barrier(*stream);
    EXPECT_EQ(ended.code(),
              world_rank == 0 ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable);
    if (world_rank == 0) {
      EXPECT_NE(base::Message(ended).find("the job has failed"), std::string::npos) << ended;
      leave.SetGroups(nullptr);
    }
  };
  std::thread first(rank, 0);
  std::thread second(rank, 1);
  while (ready < 2) std::this_thread::yield();
  leave.Leave("the job has failed");
  first.join();
  second.join();
}

TEST(EnvironmentTest, FixesCoreTypeAndThreads) {
  std::map<std::string, std::string> table;
  for (const EnvironmentEntry& entry : RankEnvironment(/*may_use_gpu=*/false, "node-a")) {
    table[entry.name] = entry.value.value_or("must not be set");
  }
  EXPECT_FALSE(table["OPENBLAS_CORETYPE"].empty());
  EXPECT_EQ(table["OPENBLAS_NUM_THREADS"], "1");
  EXPECT_EQ(table.size(), 3U) << "nothing of CUDA's";
}

TEST(EnvironmentTest, FixesWhatCudaReadsWhereAGpuMayBeUsed) {
  std::map<std::string, std::string> table;
  for (const EnvironmentEntry& entry : RankEnvironment(/*may_use_gpu=*/true, "")) {
    table[entry.name] = entry.value.value_or("must not be set");
  }
  EXPECT_EQ(table["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
  EXPECT_EQ(table["CUDA_DEVICE_MAX_CONNECTIONS"], "32");
  EXPECT_EQ(table["CUDA_MODULE_LOADING"], "EAGER");
  EXPECT_EQ(table["NVIDIA_TF32_OVERRIDE"], "0");
  EXPECT_EQ(table["NCCL_NVLS_ENABLE"], "0");
  EXPECT_EQ(table["NCCL_MAX_CTAS"], "must not be set") << "beats what a group is made with";
  EXPECT_EQ(table["NCCL_GRAPH_MIXING_SUPPORT"], "must not be set") << "0 gives wrong data";
  EXPECT_EQ(table["OPENBLAS_NUM_THREADS"], "1");
  EXPECT_FALSE(table.contains("NCCL_HOSTID")) << "of no cluster: as NCCL finds it";
}

// As for the program's own groups (run_test.cc, copies): two nodes on one machine are two hosts.
TEST(EnvironmentTest, TellsNcclTheNodeAsTheHost) {
  const auto host_of = [](const std::string& node) {
    std::map<std::string, std::string> table;
    for (const EnvironmentEntry& entry : RankEnvironment(/*may_use_gpu=*/true, node))
      table[entry.name] = entry.value.value_or("must not be set");
    return table["NCCL_HOSTID"];
  };
  EXPECT_EQ(host_of("node-a"), comm::HostIdentity("node-a"));
  EXPECT_NE(host_of("node-a"), host_of("node-b"));
}

TEST(MetricsFileTest, NumbersComeBackBitForBit) {
  const data::TempDir dir;
  megatrain::v1::StepRecord record;
  record.set_step(3);
  record.set_loss(0.1 + 0.2);
  record.set_grad_norm(std::numeric_limits<double>::quiet_NaN());
  record.set_tokens(int64_t{1} << 40);
  record.set_skipped(true);
  record.set_bubble(0.5);
  (*record.mutable_phase_seconds())["forward"] = 0.25;
  (*record.mutable_memory_bytes())["weights"] = 4096;
  {
    auto file = MetricsFile::Open(dir.Path("m.jsonl"));
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->OnStep(record);
    record.set_perplexity(1.5);
    record.set_bits_per_byte(0.75);
    (*file)->OnStep(record);
    (*file)->OnEval({.step = 3, .loss = 0, .tokens = 7, .bits_per_byte = 2.5, .split = "valid"});
    (*file)->OnEval(
        {.step = 3, .loss = std::numeric_limits<double>::quiet_NaN(), .split = "valid"});
    (*file)->OnCheckpointFailed(3, base::Internal("disk \"x\" is full\n"));
  }
  std::istringstream lines(data::ReadText(dir.Path("m.jsonl")));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "{\"kind\": \"step\", \"step\": 3, \"loss\": 0.30000000000000004, \"grad_norm\": "
            "\"nan\", \"learning_rate\": 0, \"tokens\": 1099511627776, \"consumed_samples\": 0, "
            "\"skipped\": true, \"skipped_steps\": 0, \"loss_scale\": 0, \"step_seconds\": 0, "
            "\"tokens_per_second\": 0, \"tflops_per_slot\": 0, \"model_flops\": 0, \"bubble\": "
            "0.5, \"phase_seconds\": {\"data\": 0, \"forward\": 0.25, \"backward\": 0, "
            "\"tp_comm\": 0, \"pp_wait\": 0, \"dp_comm\": 0, \"optimizer\": 0, \"ckpt\": 0, "
            "\"other\": 0}, \"memory_bytes\": {\"weights\": 4096, \"gradients\": 0, "
            "\"optimizer\": 0, \"activations\": 0, \"workspace\": 0, \"comm\": 0, \"pinned\": 0, "
            "\"libraries\": 0}}");
  const auto step = nlohmann::json::parse(line);
  EXPECT_EQ(step["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(step["grad_norm"], "nan");
  std::getline(lines, line);
  EXPECT_NE(line.find(", \"bubble\": 0.5, \"perplexity\": 1.5, \"bits_per_byte\": 0.75, "),
            std::string::npos)
      << line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "{\"kind\": \"eval\", \"step\": 3, \"split\": \"valid\", \"loss\": 0, \"tokens\": 7, "
            "\"final\": false, \"perplexity\": 1, \"bits_per_byte\": 2.5}");
  std::getline(lines, line);
  EXPECT_EQ(line,
            "{\"kind\": \"eval\", \"step\": 3, \"split\": \"valid\", \"loss\": \"nan\", "
            "\"tokens\": 0, \"final\": false}");
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["why"], "disk \"x\" is full\n");
}

}  // namespace
}  // namespace mt::rank
