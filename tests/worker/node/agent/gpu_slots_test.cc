// GPU slots: which are offered, what their ranks are given, and how a slot is freed after the end
// of its rank (P4).
#include <gmock/gmock.h>

#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::Placement;
using megatrain::v1::Register;
using megatrain::v1::Slot;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGpuBytes = int64_t{140} << 30;
constexpr int64_t kIdleBytes = int64_t{500} << 20;

GpuDevice Device(const std::string& uuid, int64_t used_bytes = kIdleBytes) {
  return {.uuid = uuid,
          .name = "NVIDIA H200",
          .memory_bytes = kGpuBytes,
          .free_bytes = kGpuBytes - used_bytes,
          .compute_capability = "9.0",
          .pci_bus_id = "0000:18:00.0",
          .numa_node = 1,
          .nvlink_peers = {"GPU-other"},
          .power_limit_watts = 700};
}

// Slots 0 and 1 are GPUs, 2 to 4 CPU slots.
class GpuAgentTest : public AgentTest {
 protected:
  GpuAgentTest() {
    config_.gpus.gpus = {{.device = Device("GPU-a"), .cpus = "0-31"},
                         {.device = Device("GPU-b"), .cpus = ""}};
    config_.gpus.driver_version = "580.1";
    config_.cpu_slots = 3;
    ReplaceAgent();
    StartAgain();
  }
  CoordinatorMessage AssignGpu(int slot, int64_t epoch = 1) {
    CoordinatorMessage message = AssignMessage(1, epoch, slot);
    message.mutable_assign()->mutable_spec()->mutable_placement()->set_device(
        Placement::DEVICE_GPU);
    message.mutable_assign()->clear_threads_per_rank();
    return message;
  }
  void StartOnGpu(int slot) {
    coordinator_.Say(AssignGpu(slot));
    loop_.RunPosted();
    Attach(0);
  }
  // Answers the probe: this much memory of GPU-a is used, GPU-b is idle.
  void AnswerUsed(int64_t used_bytes) {
    ASSERT_FALSE(gpu_probe_.asked.empty());
    GpuInventory found{.driver_version = "580.1", .error = {}, .devices = {}};
    found.devices = {Device("GPU-a", used_bytes), Device("GPU-b")};
    gpu_probe_.Answer(found);
    loop_.RunPosted();
  }
  // Passes `time` and answers each probe with the same use of memory.
  void PassHolding(seconds time, int64_t used_bytes) {
    for (seconds passed{0}; passed < time; passed += seconds(1)) {
      loop_.Advance(seconds(1));
      while (!gpu_probe_.asked.empty()) AnswerUsed(used_bytes);
    }
  }
  Register Registered() { return coordinator_.Heard(WorkerMessage::kRegister).back().register_(); }
  std::string LastReply() {
    return coordinator_.Heard(WorkerMessage::kAssignmentReply).back().assignment_reply().reason();
  }
};

TEST_F(GpuAgentTest, OffersGpusFirst) {
  const Register hello = Registered();
  ASSERT_EQ(hello.slots_size(), 5);
  const Slot& first = hello.slots(0);
  EXPECT_EQ(first.device(), megatrain::v1::GPU);
  EXPECT_EQ(first.gpu().uuid(), "GPU-a");
  EXPECT_EQ(first.gpu().name(), "NVIDIA H200");
  EXPECT_EQ(first.gpu().memory_bytes(), kGpuBytes);
  EXPECT_EQ(first.gpu().compute_capability(), "9.0");
  EXPECT_EQ(first.gpu().numa_node(), 1);
  EXPECT_EQ(first.gpu().driver_version(), "580.1");
  EXPECT_THAT(first.gpu().nvlink_peers(), ElementsAre("GPU-other"));
  EXPECT_EQ(first.out_of_order(), "");
  EXPECT_EQ(hello.slots(1).gpu().uuid(), "GPU-b");
  EXPECT_EQ(hello.slots(2).device(), megatrain::v1::CPU_SLOT);
  EXPECT_EQ(hello.slots(4).index(), 4);
  EXPECT_FALSE(hello.slots(4).has_gpu());
  EXPECT_EQ(hello.gpu_problem(), "");
}

TEST_F(GpuAgentTest, SaysWhyThereAreNoGpus) {
  config_.gpus = {};
  config_.gpus.problem = "nvmlInit: Driver/library version mismatch";
  config_.cpu_slots = 0;
  RestartAgent();
  EXPECT_EQ(Registered().slots_size(), 0);
  EXPECT_EQ(Registered().gpu_problem(), "nvmlInit: Driver/library version mismatch");
}

TEST_F(GpuAgentTest, ARankGetsItsGpuAndTheCoresBesideIt) {
  StartOnGpu(0);
  EXPECT_EQ(LastReply(), "");
  const RankLaunch& launch = launcher_.started.at(launcher_.LaunchOf(0));
  EXPECT_EQ(launch.gpu, "GPU-a");
  EXPECT_EQ(launch.cpus, "0-31");
  EXPECT_EQ(launch.threads, 1);
  const megatrain::v1::RankStatus status =
      coordinator_.Heard(WorkerMessage::kRankReport).back().rank_report().status();
  EXPECT_EQ(status.gpu(), "GPU-a");
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).used, 1);
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).free, 1);
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/false).free, 3);
  EXPECT_THAT(registry_->Text(), HasSubstr("gpu_uuid=\"GPU-a\""));
}

TEST_F(GpuAgentTest, ARankOnACpuSlotGetsNone) {
  coordinator_.Say(AssignMessage(1, 1, /*first_slot=*/2));
  loop_.RunPosted();
  const RankLaunch& launch = launcher_.started.at(launcher_.LaunchOf(0));
  EXPECT_EQ(launch.gpu, "");
  EXPECT_EQ(launch.cpus, "");
  EXPECT_EQ(launch.threads, 2);
  EndRank(0, {.code = 0});
  EXPECT_TRUE(Gone());
  EXPECT_TRUE(gpu_probe_.asked.empty());
}

TEST_F(GpuAgentTest, RefusesTheOtherKindOfSlot) {
  coordinator_.Say(AssignGpu(2));
  EXPECT_EQ(LastReply(), "slot 2 is a CPU slot, the job wants GPU slots");
  coordinator_.Say(AssignMessage(1, 2, /*first_slot=*/1));
  EXPECT_EQ(LastReply(), "slot 1 is a GPU slot, the job wants CPU slots");
  EXPECT_TRUE(launcher_.started.empty());
}

TEST_F(GpuAgentTest, ItsAllocationIsGoneWhenItsMemoryIs) {
  StartOnGpu(0);
  EndRank(0, {.code = 0});
  EXPECT_EQ(ExitReports().size(), 1U);  // the exit itself is reported at once
  EXPECT_FALSE(Gone());
  ASSERT_EQ(gpu_probe_.asked.size(), 1U);
  AnswerUsed(kGpuBytes / 2);
  EXPECT_FALSE(Gone());
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).used, 1);
  loop_.Advance(milliseconds(1900));
  EXPECT_TRUE(gpu_probe_.asked.empty());
  loop_.Advance(milliseconds(200));
  AnswerUsed(kIdleBytes + (int64_t{100} << 20));  // small changes by other users
  EXPECT_TRUE(Gone());
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).free, 2);
  loop_.Advance(seconds(60));
  EXPECT_TRUE(gpu_probe_.asked.empty());
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kSlotsChanged).empty());
}

TEST_F(GpuAgentTest, MemoryThatStaysPutsTheSlotOutOfOrder) {
  StartOnGpu(0);
  EndRank(0, {.signal = 9});
  PassHolding(seconds(59), kGpuBytes / 2);
  EXPECT_FALSE(Gone());
  PassHolding(seconds(3), kGpuBytes / 2);
  EXPECT_TRUE(Gone());
  const auto changes = coordinator_.Heard(WorkerMessage::kSlotsChanged);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].slots_changed().slots_size(), 5);
  EXPECT_EQ(changes[0].slots_changed().slots(0).out_of_order(),
            "69.5 GiB of its memory are still held after its ranks have ended");
  EXPECT_EQ(changes[0].slots_changed().slots(1).out_of_order(), "");
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).out_of_order, 1);
  // Nothing is placed there; a new session says so, too.
  coordinator_.Say(AssignGpu(0, /*epoch=*/2));
  EXPECT_THAT(LastReply(), HasSubstr("slot 0 is out of order: 69.5 GiB"));
  coordinator_.Break("cut");
  loop_.Advance(seconds(1));
  coordinator_.Register();
  EXPECT_NE(Registered().slots(0).out_of_order(), "");
  // One probe in ten seconds, until the memory is free.
  PassHolding(seconds(21), kGpuBytes / 2);
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).out_of_order, 1);
  PassHolding(seconds(11), kIdleBytes);
  EXPECT_EQ(agent_->slots().CountOf(/*gpus=*/true).free, 2);
  const auto back = coordinator_.Heard(WorkerMessage::kSlotsChanged).back();
  EXPECT_EQ(back.slots_changed().slots(0).out_of_order(), "");
  loop_.Advance(seconds(60));
  EXPECT_TRUE(gpu_probe_.asked.empty());
}

TEST_F(GpuAgentTest, ADriverThatDoesNotAnswerPutsTheSlotOutOfOrder) {
  StartOnGpu(1);
  EndRank(0, {.signal = 9});
  for (int look = 0; look <= 30; ++look) {
    EXPECT_FALSE(Gone());
    ASSERT_EQ(gpu_probe_.asked.size(), 1U) << look;
    gpu_probe_.Answer(base::Unavailable("the NVIDIA driver has not answered within 10 s"));
    loop_.RunPosted();
    if (look < 30) loop_.Advance(seconds(2));
  }
  EXPECT_TRUE(Gone());
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kSlotsChanged)
                .back()
                .slots_changed()
                .slots(1)
                .out_of_order(),
            "the NVIDIA driver has not answered within 10 s");
}

TEST_F(GpuAgentTest, ALaterAgentKeepsTheGpuWhateverItOffers) {
  StartOnGpu(0);
  // The first GPU is not offered any more, and the other one becomes slot 0.
  config_.gpus.gpus = {{.device = Device("GPU-b"), .cpus = ""},
                       {.device = Device("GPU-a", kGpuBytes / 2), .cpus = ""}};
  RestartAgent();
  const Register hello = Registered();
  EXPECT_EQ(hello.slots(0).job_uid(), kRigJob);  // by its number
  EXPECT_EQ(hello.slots(1).job_uid(), kRigJob);  // by its GPU
  EXPECT_EQ(hello.allocations(0).ranks(0).gpu(), "GPU-a");
  EndRank(0, {.code = 0});
  ASSERT_EQ(gpu_probe_.asked.size(), 1U);
  AnswerUsed(kGpuBytes / 2);  // what the rank held at the agent's start is not idle
  EXPECT_FALSE(Gone());
  loop_.Advance(seconds(2));
  AnswerUsed(kIdleBytes);
  EXPECT_TRUE(Gone());
}

TEST_F(GpuAgentTest, AStoppingAgentDoesNotWaitForMemory) {
  CoordinatorMessage message = AssignGpu(0);
  message.mutable_assign()->mutable_spec()->mutable_resilience()->set_on_agent_exit(
      megatrain::v1::Resilience::ON_AGENT_EXIT_STOP);
  coordinator_.Say(message);
  loop_.RunPosted();
  bool stopped = false;
  agent_->Shutdown([&stopped] { stopped = true; });
  EndRank(0, {.signal = 15});
  EXPECT_TRUE(Gone());
  AckAll();
  loop_.Advance(seconds(3));
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(gpu_probe_.asked.empty());
}

}  // namespace
}  // namespace mt::node
