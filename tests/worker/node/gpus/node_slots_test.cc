// The slots that a node offers: which jobs may have them, and how they are counted and described.
#include "worker/node/gpus/node_slots.h"

#include <gtest/gtest.h>

#include "tests/worker/node/agent/fakes.h"

namespace mt::node {
namespace {

class NodeSlotsTest : public testing::Test {
 protected:
  NodeSlotsTest()
      : slots_(
            {.loop = &loop_,
             .clock = &clock_,
             .probe = &probe_,
             .limits = {.device_free = std::chrono::seconds(2),
                        .device_probe = std::chrono::seconds(1)},
             .survey_interval = std::chrono::hours(1),
             .offer = Offer(),
             .cpu_slots = 2,
             .gpus_wanted = kAllGpus,
             .cuda_module = {},
             .user_of = [this](int slot, const std::string& gpu) -> std::optional<NodeSlots::User> {
               if (slot != used_slot_ && (gpu.empty() || gpu != used_gpu_)) return std::nullopt;
               return NodeSlots::User{.job_uid = "job-9", .epoch = 4};
             },
             .changed = [this] { ++num_changes_; }}) {}
  static GpuInventory Gpus(int64_t free_bytes) {
    GpuInventory found;
    for (const char* uuid : {"GPU-a", "GPU-b"}) {
      GpuDevice& gpu = found.devices.emplace_back();
      gpu.uuid = uuid;
      gpu.memory_bytes = int64_t{8} << 30;
      gpu.free_bytes = free_bytes;
    }
    return found;
  }
  static GpuOffer Offer() {
    GpuOffer offer;
    for (const GpuDevice& gpu : Gpus(int64_t{8} << 30).devices) offer.gpus.push_back({gpu, ""});
    offer.problem = "GPU-c is in MIG mode";
    return offer;
  }
  // GPU-a's memory is still held when the time is over.
  void PutFirstOutOfOrder() {
    slots_.AwaitFree({"GPU-a"}, [] {});
    for (int look = 0; look < 3; ++look) {
      loop_.RunPosted();
      if (!probe_.asked.empty()) probe_.Answer(Gpus(0));
      loop_.Advance(std::chrono::seconds(1));
    }
  }

  base::ManualClock clock_;
  ManualLoop loop_{&clock_};
  FakeGpuProbe probe_;
  int used_slot_ = -1;
  std::string used_gpu_;
  int num_changes_ = 0;
  NodeSlots slots_;
};

TEST_F(NodeSlotsTest, AJobGetsAFreeSlotOfItsKindOnly) {
  EXPECT_EQ(slots_.size(), 4);
  EXPECT_TRUE(slots_.Check(0, /*wants_gpu=*/true).ok());
  EXPECT_TRUE(slots_.Check(3, /*wants_gpu=*/false).ok());
  EXPECT_EQ(base::Message(slots_.Check(1, false)), "slot 1 is a GPU slot, the job wants CPU slots");
  EXPECT_TRUE(absl::IsInvalidArgument(slots_.Check(2, true)));
  used_slot_ = 3;
  EXPECT_EQ(base::Message(slots_.Check(3, false)), "slot 3 is used by job job-9 epoch 4");
}

TEST_F(NodeSlotsTest, ASlotIsUsedByItsNumberOrByItsGpu) {
  used_slot_ = 2;
  used_gpu_ = "GPU-b";
  EXPECT_TRUE(absl::IsFailedPrecondition(slots_.Check(1, true)));
  EXPECT_EQ(slots_.CountOf(/*gpus=*/true).used, 1);
  EXPECT_EQ(slots_.CountOf(/*gpus=*/true).free, 1);
  EXPECT_EQ(slots_.CountOf(/*gpus=*/false).used, 1);
  EXPECT_EQ(slots_.num_used(), 2);
  megatrain::v1::Slot slot;
  slots_.Describe(1, &slot);
  EXPECT_EQ(slot.job_uid(), "job-9");
  EXPECT_EQ(slot.gpu().uuid(), "GPU-b");
}

TEST_F(NodeSlotsTest, AGpuWhoseMemoryStaysHeldIsOutOfOrder) {
  PutFirstOutOfOrder();
  EXPECT_EQ(num_changes_, 1);
  EXPECT_EQ(slots_.CountOf(/*gpus=*/true).out_of_order, 1);
  EXPECT_EQ(base::Message(slots_.Check(0, true)),
            "slot 0 is out of order: 8.0 GiB of its memory are still held after its ranks have "
            "ended");
  EXPECT_TRUE(slots_.Check(1, true).ok());
  megatrain::v1::Slot slot;
  slots_.Describe(0, &slot);
  EXPECT_NE(slot.out_of_order(), "");
}

TEST_F(NodeSlotsTest, TheProblemOfTheStartComesBeforeTheNewsSince) {
  EXPECT_EQ(slots_.GpuProblem(), "GPU-c is in MIG mode");
  slots_.Start();
  loop_.Advance(std::chrono::hours(1));
  ASSERT_EQ(probe_.asked.size(), 1U);
  GpuInventory found = Gpus(0);
  found.devices.emplace_back().uuid = "GPU-c";
  probe_.Answer(found);
  EXPECT_TRUE(slots_.GpuProblem().starts_with("GPU-c is in MIG mode; GPU-c can be used now"))
      << slots_.GpuProblem();
  EXPECT_EQ(num_changes_, 1);
  EXPECT_EQ(slots_.size(), 4);
}

TEST_F(NodeSlotsTest, NothingIsProbedOnceFinished) {
  slots_.Start();
  slots_.Finish();
  slots_.AwaitFree({"GPU-a"}, [] {});
  loop_.Advance(std::chrono::hours(2));
  EXPECT_TRUE(probe_.asked.empty());
}

TEST_F(NodeSlotsTest, CpuSlotsOfAProcessorThatComputesWronglyTakeNoJob) {
  NodeSlots slots({.loop = &loop_,
                   .clock = &clock_,
                   .probe = &probe_,
                   .limits = {},
                   .survey_interval = std::chrono::hours(1),
                   .offer = Offer(),
                   .cpu_slots = 2,
                   .cpu_problem = "OpenBLAS multiplies wrongly",
                   .gpus_wanted = kAllGpus,
                   .cuda_module = {},
                   .user_of = [](int, const std::string&) { return std::nullopt; },
                   .changed = [] {}});
  EXPECT_EQ(base::Message(slots.Check(3, /*wants_gpu=*/false)),
            "slot 3 is out of order: OpenBLAS multiplies wrongly");
  EXPECT_TRUE(slots.Check(0, /*wants_gpu=*/true).ok());
  megatrain::v1::Slot slot;
  slots.Describe(2, &slot);
  EXPECT_EQ(slot.out_of_order(), "OpenBLAS multiplies wrongly");
  slots.Describe(0, &slot);
  EXPECT_EQ(slot.out_of_order(), "");
  EXPECT_EQ(slots.CountOf(/*gpus=*/false).out_of_order, 2);
  EXPECT_EQ(slots.CountOf(/*gpus=*/true).out_of_order, 0);
}

}  // namespace
}  // namespace mt::node
