// GPUs that became usable after the worker's start: the node reports that a restart would offer
// them.
#include "worker/node/gpus/gpu_survey.h"

#include <gmock/gmock.h>

#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::SlotsChanged;
using megatrain::v1::WorkerMessage;
using std::chrono::minutes;
using testing::HasSubstr;

constexpr char kNews[] =
    "GPU-c can be used now, but not when this worker started: start it again to offer what is new";

class GpuSurveyTest : public AgentTest {
 protected:
  void StartWith(const std::string& wanted, const std::vector<std::string>& offered,
                 const std::string& problem = "") {
    config_.gpus_wanted = wanted;
    config_.gpus = {};
    config_.gpus.problem = problem;
    for (const std::string& uuid : offered) config_.gpus.gpus.push_back({.device = {.uuid = uuid}});
    RestartAgent();
    AckAll();
  }
  // Advances to the survey that is due every five minutes and answers it.
  void AnswerNext(const StatusOr<GpuInventory>& found) {
    loop_.Advance(minutes(5));
    ASSERT_EQ(gpu_probe_.asked.size(), 1U);
    gpu_probe_.Answer(found);
    loop_.RunPosted();
  }
  static GpuInventory Gpus(const std::vector<std::string>& uuids) {
    GpuInventory found;
    for (const std::string& uuid : uuids) found.devices.push_back({.uuid = uuid});
    return found;
  }
  std::vector<SlotsChanged> Told() {
    std::vector<SlotsChanged> told;
    for (const auto& message : coordinator_.Heard(WorkerMessage::kSlotsChanged))
      told.push_back(message.slots_changed());
    return told;
  }
};

TEST_F(GpuSurveyTest, OneThatCameIsToldOnceAndItsSlotsStayAsTheyWere) {
  StartWith("all", {"GPU-a", "GPU-b"});
  AnswerNext(Gpus({"GPU-a", "GPU-b"}));
  EXPECT_TRUE(Told().empty());
  for (int i = 0; i < 3; ++i) AnswerNext(Gpus({"GPU-a", "GPU-c", "GPU-b"}));
  ASSERT_EQ(Told().size(), 1U);
  EXPECT_EQ(Told()[0].gpu_problem(), kNews);
  EXPECT_EQ(Told()[0].slots_size(), 2 + config_.cpu_slots);
  // The GPU disappears again.
  AnswerNext(Gpus({"GPU-a", "GPU-b"}));
  ASSERT_EQ(Told().size(), 2U);
  EXPECT_TRUE(Told()[1].has_gpu_problem());
  EXPECT_EQ(Told()[1].gpu_problem(), "");
}

TEST_F(GpuSurveyTest, ADriverThatComesLateIsFound) {
  StartWith("all", {});
  AnswerNext(base::NotFound("no NVIDIA driver"));
  AnswerNext(base::Error(absl::StatusCode::kDeadlineExceeded,
                         "the NVIDIA driver has not answered within 10 s"));
  EXPECT_TRUE(Told().empty());
  AnswerNext(Gpus({"GPU-c"}));
  ASSERT_EQ(Told().size(), 1U);
  AnswerNext(base::Unavailable("nvmlInit: mismatch"));
  EXPECT_EQ(Told().size(), 1U) << "what was said stays";
  // A new registration carries it, too.
  coordinator_.Break("restart");
  loop_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kRegister).back().register_().gpu_problem(), kNews);
}

TEST_F(GpuSurveyTest, ASickOneIsNoNewsUntilItIsWell) {
  StartWith("all", {"GPU-a"}, "GPU 1 (GPU-c) is in MIG mode: not offered");
  GpuInventory found = Gpus({"GPU-a", "GPU-c"});
  found.devices[1].error = "GPU 1 (GPU-c) is in MIG mode: not offered";
  AnswerNext(found);
  EXPECT_TRUE(Told().empty());
  AnswerNext(Gpus({"GPU-a", "GPU-c"}));
  ASSERT_EQ(Told().size(), 1U);
  EXPECT_EQ(Told()[0].gpu_problem(),
            std::string("GPU 1 (GPU-c) is in MIG mode: not offered; ") + kNews);
}

TEST_F(GpuSurveyTest, GpusWithoutTheModuleAreNoNewsUntilItIsThere) {
  Status module = base::NotFound("no module at /x");
  config_.cuda_module = [&module] { return module; };
  StartWith("all", {}, "1 GPU found, but ranks could not use it: no module at /x");
  AnswerNext(Gpus({"GPU-c"}));
  EXPECT_TRUE(Told().empty());
  module = OkStatus();
  AnswerNext(Gpus({"GPU-c"}));
  ASSERT_EQ(Told().size(), 1U);
  EXPECT_THAT(Told()[0].gpu_problem(), HasSubstr(kNews));
}

TEST_F(GpuSurveyTest, OnlyThoseThatAreWantedCount) {
  StartWith("GPU-a,GPU-d", {"GPU-a"}, "GPU-d of --gpus was not found");
  AnswerNext(Gpus({"GPU-a", "GPU-c"}));
  EXPECT_TRUE(Told().empty());
  AnswerNext(Gpus({"GPU-a", "GPU-c", "GPU-d"}));
  ASSERT_EQ(Told().size(), 1U);
  EXPECT_THAT(Told()[0].gpu_problem(), HasSubstr("; GPU-d can be used now"));
}

TEST_F(GpuSurveyTest, AWorkerWithoutGpusByChoiceDoesNotLook) {
  StartWith("none", {});
  loop_.Advance(minutes(60));
  EXPECT_TRUE(gpu_probe_.asked.empty());
}

}  // namespace
}  // namespace mt::node
