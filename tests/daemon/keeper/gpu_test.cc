// Jobs on GPUs: what device auto becomes, what is refused, slots that are out of order.
#include <gmock/gmock.h>

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using testing::HasSubstr;

class GpuJobsTest : public CoreTest {
 protected:
  // A worker with so many GPUs, then CPU slots.
  Worker MixedWorker(const std::string& node, int gpus, int cpu_slots) {
    gpus_ = gpus;
    Worker worker = NewWorker(node, gpus + cpu_slots);
    gpus_ = 0;
    return worker;
  }
  static v1::JobSpec On(v1::Placement::Device device, const std::string& name, int slots) {
    v1::JobSpec spec = TinyJob(name, slots);
    spec.mutable_placement()->set_device(device);
    return spec;
  }
  void ReportSlots(Worker& worker, int slots, int gpus, const std::string& first_out_of_order) {
    v1::WorkerMessage message;
    for (int i = 0; i < slots; ++i) {
      v1::Slot* slot = message.mutable_slots_changed()->add_slots();
      slot->set_index(i);
      slot->set_device(i < gpus ? v1::GPU : v1::CPU_SLOT);
      if (i < gpus) slot->mutable_gpu()->set_uuid(GpuUuid(worker.node, i));
    }
    message.mutable_slots_changed()->mutable_slots(0)->set_out_of_order(first_out_of_order);
    Report(worker, message);
  }
  v1::Node Node() {
    v1::ListNodesResponse nodes;
    core_->api().nodes().List(&nodes);
    return nodes.nodes(0);
  }
};

TEST_F(GpuJobsTest, AutoTakesAGpuAndSaysSo) {
  Worker worker = MixedWorker("n1", 1, 2);
  const v1::Job job = Submit(TinyJob("demo", 1));
  ASSERT_EQ(job.state(), v1::ADMITTED) << job.message();
  EXPECT_EQ(job.spec().placement().device(), v1::Placement::DEVICE_GPU);
  EXPECT_EQ(job.spec().training().precision(), v1::Training::PRECISION_BF16);
  EXPECT_FALSE(job.spec().placement().has_threads_per_rank());
  EXPECT_EQ(job.ranks(0).slot(), 0);
  EXPECT_EQ(job.ranks(0).gpu(), "GPU-n1-0");
  const v1::Assign assign = worker.link->received.back().assign();
  EXPECT_EQ(assign.spec().placement().device(), v1::Placement::DEVICE_GPU);
  EXPECT_EQ(assign.threads_per_rank(), 0);
  // What the rank says of itself does not change where it is.
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  EXPECT_EQ(Get(job.uid()).ranks(0).gpu(), "GPU-n1-0");
  // The next one waits for the GPU, although CPU slots are free: auto prefers GPUs.
  const v1::Job next = Submit(TinyJob("next", 1));
  EXPECT_EQ(next.message(), "needs 1 GPU slot, 0 of 1 are free");
  EXPECT_FALSE(next.spec().placement().has_device());
}

TEST_F(GpuJobsTest, AutoTakesCpuSlotsWhereThereAreNoGpus) {
  Worker worker = MixedWorker("n1", 0, 2);
  const v1::Job job = Submit(TinyJob("demo", 2));
  ASSERT_EQ(job.state(), v1::ADMITTED) << job.message();
  EXPECT_EQ(job.spec().placement().device(), v1::Placement::DEVICE_CPU);
  EXPECT_EQ(job.spec().training().precision(), v1::Training::PRECISION_FP32);
  EXPECT_EQ(job.spec().placement().threads_per_rank(), 1);
  EXPECT_EQ(job.ranks(0).gpu(), "");
}

TEST_F(GpuJobsTest, WhatWasDecidedOnceStays) {
  Worker cpu = MixedWorker("n1", 0, 1);
  const v1::Job job = StartRunning(cpu, "demo", 1);
  Worker gpu = MixedWorker("n2", 1, 0);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(cpu, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::Job again = Get(job.uid());
  ASSERT_EQ(again.state(), v1::ADMITTED) << again.message();
  EXPECT_EQ(again.ranks(0).node(), "n1");
}

TEST_F(GpuJobsTest, MixedNodesServeEachKind) {
  Worker worker = MixedWorker("n1", 1, 2);
  const v1::Job gpu = Submit(On(v1::Placement::DEVICE_GPU, "gpu", 1));
  ASSERT_EQ(gpu.state(), v1::ADMITTED);
  EXPECT_EQ(gpu.ranks(0).slot(), 0);
  const v1::Job cpu = Submit(On(v1::Placement::DEVICE_CPU, "cpu", 2));
  ASSERT_EQ(cpu.state(), v1::ADMITTED) << cpu.message();
  EXPECT_EQ(cpu.ranks(0).slot(), 1);
  EXPECT_EQ(cpu.ranks(1).slot(), 2);
  // Cores are shared by the CPU slots alone.
  EXPECT_EQ(cpu.spec().placement().threads_per_rank(), 1);
  const v1::Job none = Submit(On(v1::Placement::DEVICE_CPU, "more", 1));
  EXPECT_EQ(none.message(), "needs 1 CPU slot, 0 of 2 are free");
}

TEST_F(GpuJobsTest, AGpuJobWaitsForANodeWithGpus) {
  Worker cpu = MixedWorker("n1", 0, 2);
  const v1::Job job = Submit(On(v1::Placement::DEVICE_GPU, "demo", 1));
  EXPECT_EQ(job.message(), "needs 1 GPU slot, no connected node has GPU slots");
  Worker gpu = MixedWorker("n2", 1, 0);
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Get(job.uid()).ranks(0).node(), "n2");
}

TEST_F(GpuJobsTest, EachOfSeveralRanksTakesAGpu) {
  const v1::Job asked = Submit(On(v1::Placement::DEVICE_GPU, "asked", 2));
  EXPECT_THAT(asked.message(), HasSubstr("needs 2 GPU slots"));
  const v1::Job open = Submit(TinyJob("open", 2));  // auto
  Worker worker = MixedWorker("n1", 3, 2);
  const v1::Job placed = Get(asked.uid());
  ASSERT_EQ(placed.state(), v1::ADMITTED);
  ASSERT_EQ(placed.ranks_size(), 2);
  EXPECT_EQ(placed.ranks(0).gpu(), "GPU-n1-0");
  EXPECT_EQ(placed.ranks(1).gpu(), "GPU-n1-1");
  // One is left, and CPU slots are not taken where there are GPUs.
  EXPECT_EQ(Get(open.uid()).state(), v1::QUEUED);
  EXPECT_THAT(Get(open.uid()).message(), HasSubstr("needs 2 GPU slots"));
}

TEST_F(GpuJobsTest, SlotsOutOfOrderAreLeftAlone) {
  Worker worker = MixedWorker("n1", 1, 1);
  ReportSlots(worker, 2, 1, "70 GiB of its memory are still held");
  EXPECT_EQ(Node().slots(0).out_of_order(), "70 GiB of its memory are still held");
  ASSERT_EQ(Events("SlotOutOfOrder").size(), 1U);
  EXPECT_EQ(Events("SlotOutOfOrder")[0].message(),
            "slot 0, GPU-n1-0: 70 GiB of its memory are still held");
  const v1::Job job = Submit(TinyJob("demo", 1));
  EXPECT_EQ(job.message(),
            "needs 1 GPU slot, cluster has 0, 1 out of order (n1: 70 GiB of its memory are still "
            "held)");
  ReportSlots(worker, 2, 1, "");
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Events("SlotInOrder").size(), 1U);
  // What it says of GPUs that it does not offer is shown; what it does not say stays.
  v1::WorkerMessage news;
  *news.mutable_slots_changed()->mutable_slots() = Node().slots();
  news.mutable_slots_changed()->set_gpu_problem("GPU-x can be used now");
  Report(worker, news);
  EXPECT_EQ(Node().gpu_problem(), "GPU-x can be used now");
  ReportSlots(worker, 2, 1, "");
  EXPECT_EQ(Node().gpu_problem(), "GPU-x can be used now");
  news.mutable_slots_changed()->set_gpu_problem("");
  Report(worker, news);
  EXPECT_EQ(Node().gpu_problem(), "");
  // Slots that it has not registered mean nothing.
  ReportSlots(worker, 3, 2, "x");
  EXPECT_EQ(Node().slots_size(), 2);
  EXPECT_EQ(Node().slots(0).out_of_order(), "");
}

TEST_F(GpuJobsTest, ANodeWhoseGpusDoNotWorkIsShown) {
  gpu_problem_ = "nvmlInit: Driver/library version mismatch";
  Worker worker = NewWorker("n1", 0);
  EXPECT_EQ(Node().state(), v1::NODE_READY);
  EXPECT_EQ(Node().gpu_problem(), gpu_problem_);
  gpu_problem_.clear();
  Worker empty = NewWorker("n2", 0);
  EXPECT_TRUE(empty.link->closed) << "nothing to offer, and no reason";
}

}  // namespace
}  // namespace mt::daemon
