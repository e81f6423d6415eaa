// Who holds slots, asked before a job is submitted: on a free cluster, a full one, one with both
// kinds of slots, and behind a queue.
#include "daemon/api/slot_holders.h"

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class SlotHoldersTest : public CoreTest {
 protected:
  // `device` empty: auto.
  static v1::JobSpec Asked(const std::string& device = "cpu") {
    v1::JobSpec spec;
    const auto faults =
        spec::ParseJob("name: look\nkind: generate\nread: {checkpoint: default/demo}\n" +
                           (device.empty() ? "" : "placement: {device: " + device + "}\n"),
                       {}, &spec);
    EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
    if (device.empty()) spec.mutable_placement()->clear_device();
    return spec;
  }
  v1::WhoHoldsResponse Ask(const v1::JobSpec& spec) {
    v1::WhoHoldsRequest request;
    *request.mutable_spec() = spec;
    v1::WhoHoldsResponse response;
    const Status status = core_->api().slot_holders().WhoHolds(request, &response);
    EXPECT_TRUE(status.ok()) << status;
    return response;
  }
  // "n1 CPU_SLOT 2 demo RUNNING".
  static std::vector<std::string> Holders(const v1::WhoHoldsResponse& response) {
    std::vector<std::string> out;
    for (const auto& holder : response.holders()) {
      out.push_back(fmt::format("{} {} {} {} {}", holder.node(),
                                v1::DeviceType_Name(holder.device()), holder.slots(), holder.name(),
                                v1::JobState_Name(holder.state())));
    }
    return out;
  }
  // "CPU_SLOT 1/3".
  static std::vector<std::string> Slots(const v1::WhoHoldsResponse& response) {
    std::vector<std::string> out;
    for (const auto& slots : response.slots()) {
      out.push_back(fmt::format("{} {}/{}", v1::DeviceType_Name(slots.device()), slots.free(),
                                slots.total()));
    }
    return out;
  }
  using Texts = std::vector<std::string>;
};

TEST_F(SlotHoldersTest, AFreeSlotIsThere) {
  Worker worker = NewWorker("n1", 3);
  StartRunning(worker, "demo", 2);
  const v1::WhoHoldsResponse answer = Ask(Asked());
  EXPECT_TRUE(answer.starts()) << answer.why();
  EXPECT_EQ(answer.why(), "");
  EXPECT_EQ(answer.device(), v1::CPU_SLOT);
  EXPECT_EQ(Slots(answer), (Texts{"CPU_SLOT 1/3"}));
  EXPECT_EQ(Holders(answer), (Texts{"n1 CPU_SLOT 2 demo RUNNING"}));
}

TEST_F(SlotHoldersTest, AFullClusterNamesItsHolders) {
  Worker first = NewWorker("n1", 2);
  const v1::Job demo = StartRunning(first, "demo", 2);
  Worker second = NewWorker("n2", 1);
  const v1::Job other = StartRunning(second, "other", 1);
  const v1::WhoHoldsResponse answer = Ask(Asked());
  EXPECT_FALSE(answer.starts());
  EXPECT_NE(answer.why().find("needs 1 CPU slot"), std::string::npos) << answer.why();
  EXPECT_EQ(Slots(answer), (Texts{"CPU_SLOT 0/3"}));
  EXPECT_EQ(Holders(answer), (Texts{"n1 CPU_SLOT 2 demo RUNNING", "n2 CPU_SLOT 1 other RUNNING"}));
  EXPECT_EQ(answer.holders(0).job_uid(), demo.uid());
  EXPECT_EQ(answer.holders(0).namespace_(), demo.namespace_());
  EXPECT_EQ(answer.holders(1).job_uid(), other.uid());
  EXPECT_EQ(core_->ledger().Jobs().size(), 2u) << "nothing was submitted";
}

TEST_F(SlotHoldersTest, DeviceAutoIsAGpuWhereThereIsAny) {
  gpus_ = 1;
  Worker worker = NewWorker("n1", 2);
  const v1::WhoHoldsResponse any = Ask(Asked(""));
  EXPECT_TRUE(any.starts()) << any.why();
  EXPECT_EQ(any.device(), v1::GPU);
  EXPECT_EQ(Slots(any), (Texts{"CPU_SLOT 1/1", "GPU 1/1"}));
  EXPECT_EQ(Ask(Asked("cpu")).device(), v1::CPU_SLOT);
}

TEST_F(SlotHoldersTest, AJobThatWaitsForMoreIsAhead) {
  Worker worker = NewWorker("n1", 3);
  StartRunning(worker, "demo", 2);
  Submit(TinyJob("large", 2));
  const v1::WhoHoldsResponse answer = Ask(Asked());
  EXPECT_FALSE(answer.starts());
  EXPECT_EQ(answer.why(), "job 'large' is ahead in the queue");
  v1::JobSpec urgent = Asked();
  urgent.set_priority(10);
  EXPECT_TRUE(Ask(urgent).starts()) << "of a higher priority it is served first";
}

TEST_F(SlotHoldersTest, WithoutNodesNobodyHoldsAnything) {
  const v1::WhoHoldsResponse answer = Ask(Asked());
  EXPECT_FALSE(answer.starts());
  EXPECT_NE(answer.why(), "");
  EXPECT_EQ(answer.slots_size(), 0);
  EXPECT_EQ(answer.holders_size(), 0);
}

TEST_F(SlotHoldersTest, AFaultyJobIsRefused) {
  v1::WhoHoldsRequest request;
  *request.mutable_spec() = Asked();
  request.mutable_spec()->mutable_model()->set_layers(2);
  v1::WhoHoldsResponse response;
  const Status refused = core_->api().slot_holders().WhoHolds(request, &response);
  EXPECT_EQ(rpc::ReasonOf(refused), "INVALID_SPEC") << refused;
}

}  // namespace
}  // namespace mt::daemon
