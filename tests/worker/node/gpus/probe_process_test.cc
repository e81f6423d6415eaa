// Runs the real mt-gpu-probe on a library that replaces the driver's, and programs that misbehave
// in its place.
#include "worker/node/gpus/probe_process.h"

#include <cstdlib>
#include <optional>

#include <gmock/gmock.h>

#include "tests/worker/node/ranks/node_rig.h"
#include "worker/node/gpus/gpu_offer.h"

namespace mt::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class ProbeProcessTest : public NodeTest {
 protected:
  ProbeProcessTest() { ::setenv("LD_LIBRARY_PATH", MT_FAKE_DRIVER_FOLDER, 1); }
  ~ProbeProcessTest() override {
    for (const char* name : {"LD_LIBRARY_PATH", "MT_FAKE_NVML", "CUDA_VISIBLE_DEVICES"})
      ::unsetenv(name);
  }
  static StatusOr<GpuInventory> Now(const char* how, milliseconds deadline = seconds(30)) {
    ::setenv("MT_FAKE_NVML", how, 1);
    return ProbeNow(MT_PROBE_BINARY, deadline);
  }
  // Probes on the loop and waits for the answer.
  static StatusOr<GpuInventory> Ask(AsioEventLoop* loop, ProbeProcess* probe) {
    std::optional<StatusOr<GpuInventory>> answer;
    loop->Post([&] {
      probe->Probe([&](const StatusOr<GpuInventory>& found) {
        answer = found;
        loop->Stop();
      });
    });
    loop->Run();
    return *answer;
  }
};

TEST_F(ProbeProcessTest, TellsTheGpus) {
  const auto found = Now("");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->devices.size(), 2U);
  EXPECT_EQ(found->devices[0].uuid, "GPU-aaaa");
  EXPECT_EQ(found->devices[1].compute_capability, "9.0");
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const auto visible = Now("");
  ASSERT_TRUE(visible.ok());
  ASSERT_EQ(visible->devices.size(), 1U);
  EXPECT_EQ(visible->devices[0].uuid, "GPU-bbbb");
}

TEST_F(ProbeProcessTest, TellsASickGpuFromASickDriverAndFromNone) {
  const auto sick = Now("sick");
  ASSERT_TRUE(sick.ok()) << sick.status();
  EXPECT_EQ(sick->devices[0].error, "");
  EXPECT_THAT(sick->devices[1].error, HasSubstr("GPU is lost"));
  const auto broken = Now("broken");
  EXPECT_TRUE(absl::IsUnavailable(broken.status()));
  EXPECT_THAT(base::Message(broken.status()), HasSubstr("Driver/library version mismatch"));
  const auto none = Now("unloaded");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(base::Message(none.status()), HasSubstr("no NVIDIA driver"));
  const auto crash = Now("crash");
  EXPECT_TRUE(absl::IsUnavailable(crash.status()) || absl::IsInternal(crash.status()));
  EXPECT_THAT(base::Message(crash.status()), HasSubstr("mt-gpu-probe"));
}

TEST_F(ProbeProcessTest, AGpuInMigModeIsNotOfferedAndTheReasonIsTold) {
  const auto found = Now("mig");
  const GpuOffer offer = OfferGpus("all", found, [](int) { return ""; });
  ASSERT_EQ(offer.gpus.size(), 1U);
  EXPECT_EQ(offer.gpus[0].device.uuid, "GPU-bbbb");
  EXPECT_THAT(offer.problem, HasSubstr("GPU 0 (GPU-aaaa) is in MIG mode: not offered; disable it"));
  EXPECT_EQ(OfferGpus("GPU-bbbb", found, [](int) { return ""; }).problem, "");
  EXPECT_THAT(OfferGpus("GPU-aaaa", found, [](int) { return ""; }).problem,
              HasSubstr("in MIG mode"));
}

TEST_F(ProbeProcessTest, ADriverThatHangsCostsTheDeadline) {
  const auto hung = Now("hang", milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(hung.status()));
  EXPECT_EQ(base::Message(hung.status()), "the NVIDIA driver has not answered within 0.2 s");
}

TEST_F(ProbeProcessTest, OnTheLoopOneAfterTheOther) {
  AsioEventLoop loop;
  ProbeProcess probe(&loop, MT_PROBE_BINARY, seconds(30));
  ::setenv("MT_FAKE_NVML", "", 1);
  EXPECT_TRUE(Ask(&loop, &probe).ok());
}

TEST_F(ProbeProcessTest, OnTheLoopAHungOneIsGivenUp) {
  AsioEventLoop loop;
  ProbeProcess probe(&loop, MT_PROBE_BINARY, milliseconds(200));
  ::setenv("MT_FAKE_NVML", "hang", 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Ask(&loop, &probe).status()));
}

TEST_F(ProbeProcessTest, OtherProgramsAreNoProbe) {
  EXPECT_TRUE(absl::IsInternal(ProbeNow("/no/such/mt-gpu-probe", seconds(5)).status()));
  const auto silent = ProbeNow(Script("exit 4"), seconds(30));
  EXPECT_TRUE(absl::IsInternal(silent.status()));
  EXPECT_THAT(base::Message(silent.status()), HasSubstr("exit code 4"));
  EXPECT_TRUE(absl::IsInternal(ProbeNow(Script("echo hello"), seconds(30)).status()));
}

}  // namespace
}  // namespace mt::node
