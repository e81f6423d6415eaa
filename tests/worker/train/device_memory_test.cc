// A run whose device has memory of its own, without a GPU: nothing is copied from or to pageable
// memory in any part of a run, and a plan that does not fit is refused before the first step.
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/parallel/groups/hungry_factory.h"
#include "tests/worker/train/guarded_backend.h"
#include "tests/worker/train/train_rig.h"
#include "worker/comm/threads/hub.h"
#include "worker/parallel/groups/rank_groups.h"

namespace mt::train {
namespace {

class DeviceMemoryTest : public TrainTest {
 protected:
  RankOutcome RunOn(GuardedBackend* backend, const std::vector<std::string>& overrides,
                    Commands scripted = {}) {
    Script commands(std::move(scripted));
    return std::move(RunJob(TinyJob(overrides), {.root = dir_.path(),
                                                 .commands = &commands,
                                                 .backend = backend,
                                                 .adjust = [](int, TrainArgs* args) {
                                                   args->idle_interval =
                                                       std::chrono::milliseconds(0);
                                                 }})[0]);
  }
};

TEST_F(DeviceMemoryTest, NoPartOfARunCopiesPageableMemory) {
  for (const char* precision : {"training.precision=fp32", "training.precision=bf16"}) {
    const std::vector<std::string> fields = {precision, "training.micro_batch_size=1",
                                             "training.eval.every_iters=6", "training.eval.iters=2",
                                             "model.position=rope"};
    std::vector<std::string> saving = fields;
    saving.insert(saving.end(), {std::string("checkpoint.directory=") + (precision + 19),
                                 "checkpoint.every_iters=5"});
    GuardedBackend backend(int64_t{1} << 30);
    // Held for some idle reductions, saved on command, stopped and resumed.
    std::vector<std::string> first = saving;
    first.emplace_back("training.exit_at_iter=12");
    const RankOutcome begun = RunOn(&backend, first,
                                    {{3, {.kind = CommandKind::kHold, .id = "hold"}},
                                     {12, {.kind = CommandKind::kResume, .id = "resume"}},
                                     {15, {.kind = CommandKind::kCheckpointNow, .id = "save"}}});
    ASSERT_TRUE(begun.result.status.ok()) << begun.result.status;
    EXPECT_EQ(begun.seen.commands_done.size(), 3U);
    const RankOutcome ended = RunOn(&backend, saving);
    ASSERT_TRUE(ended.result.status.ok()) << ended.result.status;
    EXPECT_EQ(ended.seen.infos.at(0).resumed_from_step, 12);
    EXPECT_GT(backend.device().num_copies(), 0);
    // The same bits as on the CPU's own device.
    std::vector<RankOutcome> straight = RunJob(TinyJob(fields), {.root = dir_.path()});
    ASSERT_TRUE(straight[0].result.status.ok()) << straight[0].result.status;
    const std::vector<StepRecord>& steps = straight[0].seen.steps;
    ExpectEqualCurve(begun.seen.steps, {steps.begin(), steps.begin() + 12});
    ExpectEqualCurve(ended.seen.steps, {steps.begin() + 12, steps.end()});
    ASSERT_FALSE(ended.seen.evals.empty());
    EXPECT_EQ(ended.seen.evals.back().loss, straight[0].seen.evals.back().loss);
  }
}

TEST_F(DeviceMemoryTest, APlanIsHeldAgainstWhatTheDeviceHasFree) {
  const std::vector<std::string> fields = {"training.precision=fp32", "training.train_iters=2"};
  GuardedBackend roomy(int64_t{1} << 30);
  const RankOutcome ran = RunOn(&roomy, fields);
  ASSERT_EQ(ran.seen.steps.size(), 2U);
  const memory::BytesByKind bytes = MemoryOf(ran.seen.steps[0]);
  const int64_t pinned = bytes[static_cast<size_t>(memory::Kind::kPinned)];
  EXPECT_GT(pinned, 0);
  EXPECT_EQ(bytes[static_cast<size_t>(memory::Kind::kLibraries)], 0);
  const int64_t needed = memory::Total(bytes) - pinned;

  GuardedBackend enough(needed + memory::kLibraryReserveBytes);
  EXPECT_TRUE(RunOn(&enough, fields).result.status.ok()) << "to the last byte";

  GuardedBackend short_of_it(needed + memory::kLibraryReserveBytes - 256);
  const RankOutcome refused = RunOn(&short_of_it, fields);
  EXPECT_FALSE(refused.created);
  EXPECT_EQ(failure::CauseOf(refused.result.status), failure::Cause::kOutOfMemory);
  const std::string message = base::Message(refused.result.status);
  for (const std::string& part :
       {fmt::format("256 bytes = 0.000 GiB more than the {} bytes", needed - 256),
        fmt::format("a rank needs {} bytes", needed + pinned), std::string("pinned "),
        std::string("on guarded cpu"), std::string("training.micro_batch_size")}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

// Two ranks whose groups take memory of their devices; what the first one's memory is reported as.
memory::BytesByKind MemoryWithGroups(const std::string& root, int64_t bytes_of_group) {
  const megatrain::v1::JobSpec job =
      TinyJob({"training.precision=fp32", "training.train_iters=1", "parallel.data=2"});
  comm::ThreadsHub hub(comm::CommConfig{});
  std::array<Observed, 2> seen;
  std::vector<std::thread> ranks;
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    ranks.emplace_back([&, rank] {
      GuardedBackend backend(int64_t{1} << 30);
      parallel::HungryFactory on_device(&hub, &backend.device(), bytes_of_group);
      const auto groups = parallel::RankGroups::CreateForJob(job, static_cast<int>(rank), &hub,
                                                             &backend.device(), &on_device)
                              .value();
      const auto trainer = Trainer::Create({.job = &job,
                                            .data_root = root + "/data",
                                            .checkpoint_root = root + "/checkpoints",
                                            .make_checkpoint_root = true,
                                            .cache_root = root + "/cache",
                                            .groups = groups.get(),
                                            .backend = &backend,
                                            .observer = &seen[rank]});
      ASSERT_TRUE(trainer.ok()) << trainer.status();
      const TrainResult result = (*trainer)->Run();
      EXPECT_TRUE(result.status.ok()) << result.status;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(seen[0].steps.size(), 1U);
  return seen[0].steps.empty() ? memory::BytesByKind{} : MemoryOf(seen[0].steps[0]);
}

TEST_F(DeviceMemoryTest, WhatCommunicatorsTookIsReportedAsCommunication) {
  const memory::BytesByKind without = MemoryWithGroups(dir_.path(), 0);
  const memory::BytesByKind with = MemoryWithGroups(dir_.path(), 4096);
  for (size_t kind = 0; kind < with.size(); ++kind) {
    const bool is_comm = kind == static_cast<size_t>(memory::Kind::kComm);
    EXPECT_EQ(with[kind] - without[kind], is_comm ? 3 * 4096 : 0)
        << memory::Name(static_cast<memory::Kind>(kind));
  }
}

}  // namespace
}  // namespace mt::train
