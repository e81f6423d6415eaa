// What `get nodes` and `describe node` print about GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NodesTest : public testing::Test {
 protected:
  // "gpu-1" has two GPUs and two CPU slots; the first of each kind is in use.
  NodesTest() {
    v1::Node* node = server_.state().nodes.add_nodes();
    node->set_name("gpu-1");
    node->set_state(v1::NODE_READY);
    node->set_cores(64);
    node->set_memory_bytes(int64_t{512} << 30);
    node->set_version("0.1.0");
    for (int i = 0; i < 4; ++i) {
      v1::Slot* slot = node->add_slots();
      slot->set_index(i);
      slot->set_device(i < 2 ? v1::GPU : v1::CPU_SLOT);
      if (i % 2 == 0) slot->set_job_uid("uid-of-tiny");
      if (i >= 2) continue;
      v1::GpuFacts* gpu = slot->mutable_gpu();
      gpu->set_uuid(i == 0 ? "GPU-8c5c3b0e-0001" : "GPU-11112222-0002");
      gpu->set_name("NVIDIA H200");
      gpu->set_memory_bytes(int64_t{140} << 30);
      gpu->set_compute_capability("9.0");
      gpu->set_pci_bus_id(i == 0 ? "0000:18:00.0" : "0000:2a:00.0");
      gpu->set_numa_node(i - 1);
      gpu->add_nvlink_peers(i == 0 ? "GPU-11112222-0002" : "GPU-8c5c3b0e-0001");
      gpu->set_driver_version("580.82.07");
      gpu->set_power_limit_watts(700);
    }
  }
  v1::Node& node() { return *server_.state().nodes.mutable_nodes(0); }
  std::string Out(std::vector<std::string> args) {
    const Ran ran = Mtctl(&server_, std::move(args));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.out;
  }
  FakeCoordinator server_;
};

TEST_F(NodesTest, SlotsOutOfOrderAreCountedAndExplained) {
  for (const int slot : {2, 3}) {
    node().mutable_slots(slot)->clear_job_uid();
    node().mutable_slots(slot)->set_out_of_order("OpenBLAS 0.3.21 multiplies wrongly");
  }
  EXPECT_THAT(
      Out({"get", "nodes"}),
      AllOf(HasSubstr("gpu-1  READY  1 of 2     0 of 2, 2 out of order  "),
            HasSubstr("\ngpu-1: 2 slots out of order: OpenBLAS 0.3.21 multiplies wrongly\n")));
  EXPECT_THAT(Out({"get", "nodes", "-o", "wide"}),
              AllOf(HasSubstr("slot 2: OpenBLAS 0.3.21 multiplies wrongly\n"),
                    Not(HasSubstr("gpu-1: 2 slots"))));
  EXPECT_THAT(Out({"describe", "node", "gpu-1"}),
              HasSubstr("out of order: OpenBLAS 0.3.21 multiplies wrongly"));
}

TEST_F(NodesTest, TheTableHasBothKindsOfSlots) {
  EXPECT_THAT(
      Out({"get", "nodes"}),
      HasSubstr("NODE   STATE  GPUS FREE  CPU FREE  GPU                     CORES  MEMORY     "
                "HEARTBEAT  VERSION\n"
                "gpu-1  READY  1 of 2     1 of 2    NVIDIA H200, 140.0 GiB  64     512.0 GiB  -   "
                "       0.1.0\n"));
  const std::string wide = Out({"get", "nodes", "-o", "wide"});
  EXPECT_THAT(wide, HasSubstr("GPU-8c5c3b0e,GPU-11112222"));
  // A slot that is out of service is not free.
  node().mutable_slots(1)->set_out_of_order("70 GiB are still held");
  EXPECT_THAT(Out({"get", "nodes"}), HasSubstr("gpu-1  READY  0 of 2, 1 out of order  1 of 2"));
}

TEST_F(NodesTest, ARefusedClaimIsShown) {
  EXPECT_THAT(Out({"describe", "node", "gpu-1"}), Not(HasSubstr("claim")));
  node().set_refused_claim("10.0.0.9 (boot b): the name belongs to a worker that is heard");
  EXPECT_THAT(Out({"get", "nodes"}), HasSubstr("gpu-1  READY, claim refused  1 of 2"));
  EXPECT_THAT(Out({"describe", "node", "gpu-1"}),
              HasSubstr("Refused claim:    10.0.0.9 (boot b): the name belongs to a worker"));
}

TEST_F(NodesTest, JsonHasEverything) {
  const json nodes = json::parse(Out({"get", "nodes", "-o", "json"})).at("nodes");
  const json& slot = nodes.at(0).at("slots").at(1);
  EXPECT_EQ(slot.at("device"), "GPU");
  EXPECT_EQ(slot.at("gpu").at("uuid"), "GPU-11112222-0002");
  EXPECT_EQ(slot.at("gpu").at("memory_bytes"), int64_t{140} << 30);
  EXPECT_EQ(slot.at("gpu").at("nvlink_peers").at(0), "GPU-8c5c3b0e-0001");
  EXPECT_FALSE(nodes.at(0).at("slots").at(2).contains("gpu"));
}

TEST_F(NodesTest, DescribeTellsEachSlot) {
  node().mutable_slots(1)->set_out_of_order("70.0 GiB of its memory are still held");
  const std::string text = Out({"describe", "node", "gpu-1"});
  EXPECT_THAT(text, HasSubstr("Driver:           580.82.07\n"));
  EXPECT_THAT(text, HasSubstr("  SLOT  NAME         MEMORY     UUID               CC   PCI"));
  EXPECT_THAT(text,
              HasSubstr("  0     NVIDIA H200  140.0 GiB  GPU-8c5c3b0e-0001  9.0  0000:18:00.0  "
                        "-     1       700 W  job uid-of-tiny\n"));
  EXPECT_THAT(text, HasSubstr("0000:2a:00.0  0     0       700 W  out of order: 70.0 GiB of its "
                              "memory are still held\n"));
  EXPECT_THAT(text,
              HasSubstr("CPU slots:\n  SLOT  STATE\n  2     job uid-of-tiny\n  3     free\n"));
  EXPECT_THAT(text, Not(HasSubstr("GPU problem")));
  EXPECT_EQ(json::parse(Out({"describe", "node", "gpu-1", "-o", "json"})).at("name"), "gpu-1");
  EXPECT_EQ(Out({"describe", "node", "gpu-1", "-o", "name"}), "gpu-1\n");
  const Ran none = Mtctl(&server_, {"describe", "node", "other"});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("no node 'other'"));
  EXPECT_EQ(Mtctl(&server_, {"describe"}).code, kExitUsage);
}

TEST_F(NodesTest, APeerThatIsNotOfferedIsCounted) {
  node().mutable_slots(0)->mutable_gpu()->add_nvlink_peers("GPU-of-another-user");
  EXPECT_THAT(Out({"describe", "node", "gpu-1"}), HasSubstr("-     1 + 1 not offered  700 W"));
}

TEST_F(NodesTest, WhatIsWrongIsSaid) {
  node().set_gpu_problem("GPU 1: GPU is lost");
  EXPECT_THAT(Out({"get", "nodes"}), HasSubstr("NVIDIA H200, 140.0 GiB (not all work)"));
  EXPECT_THAT(Out({"get", "nodes", "-o", "wide"}), HasSubstr("GPU 1: GPU is lost"));
  EXPECT_THAT(Out({"describe", "node", "gpu-1"}),
              HasSubstr("GPU problem:      GPU 1: GPU is lost\n"));
  node().clear_slots();
  node().set_gpu_problem("nvmlInit: Driver/library version mismatch");
  EXPECT_THAT(Out({"get", "nodes"}), HasSubstr("gpu-1  READY  -          -         does not work"));
}

TEST_F(NodesTest, ARanksGpuIsShown) {
  v1::Job job = MakeJob("tiny", v1::RUNNING);
  v1::RankStatus* rank = job.add_ranks();
  rank->set_node("gpu-1");
  rank->set_gpu("GPU-8c5c3b0e-0001");
  rank->set_state(v1::TRAINING);
  server_.state().jobs = {job};
  EXPECT_THAT(Out({"describe", "tiny"}), HasSubstr("gpu-1  0     GPU-8c5c3b0e  TRAINING"));
}

}  // namespace
}  // namespace mt::client
