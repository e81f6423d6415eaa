// What makes a node itself on the agent's side: its secret on disk and in the registration, and the
// numbers of its reports that it tells.
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/node/agent/agent_rig.h"
#include "worker/node/agent/secret_file.h"

namespace mt::node {
namespace {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::WorkerMessage;
using std::chrono::seconds;

class IdentityTest : public AgentTest {
 protected:
  IdentityTest() : folder_(dir_ + "/identity") {}

  SecretFile Open(const std::string& node = "node-a") {
    auto file = SecretFile::Open(folder_, node);
    EXPECT_TRUE(file.ok()) << file.status();
    return std::move(file).value();
  }
  // An agent on that file; the coordinator has let it in.
  void StartOn(SecretFile* file) {
    agent_.reset();
    loop_.Clear();
    coordinator_.open = false;
    metrics_.reset();
    registry_ = std::make_unique<metrics::Registry>();
    metrics_ = std::make_unique<WorkerMetrics>(
        WorkerMetrics::Config{.node = "node-a", .version = "1"}, &loop_, registry_.get());
    agent_ = std::make_unique<Agent>(config_, Agent::Seams{.loop = &loop_,
                                                           .clock = &clock_,
                                                           .coordinator = &coordinator_,
                                                           .ranks = &ranks_,
                                                           .launcher = &launcher_,
                                                           .store = &store_,
                                                           .metrics = metrics_.get(),
                                                           .gpu_probe = &gpu_probe_,
                                                           .secret = file});
    agent_->Start();
  }
  void GiveSecret(const std::string& secret, int64_t generation) {
    CoordinatorMessage message;
    message.mutable_registered()->set_node_secret(secret);
    message.mutable_registered()->set_generation(generation);
    coordinator_.Say(message);
  }
  std::string folder_;
};

TEST_F(IdentityTest, TheSecretIsOnDiskBeforeTheCoordinatorHearsThatItIs) {
  SecretFile file = Open();
  StartOn(&file);
  EXPECT_EQ(coordinator_.heard.front().register_().node_secret(), "");
  GiveSecret(std::string("\0\xff secret", 9), 3);
  ASSERT_EQ(coordinator_.Heard(WorkerMessage::kSecretKept).size(), 1u);
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kSecretKept)[0].secret_kept().generation(), 3);
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kSecretKept)[0].seq(), 0);
  struct stat info {};
  ASSERT_EQ(::stat((folder_ + "/secret.bin").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // The next agent of this state shows it.
  SecretFile again = Open();
  StartOn(&again);
  EXPECT_EQ(coordinator_.heard.front().register_().node_secret(), std::string("\0\xff secret", 9));
  EXPECT_EQ(coordinator_.heard.front().register_().generation(), 3);
  // An answer without one leaves it.
  coordinator_.Register();
  EXPECT_EQ(Open().generation(), 3);
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kSecretKept).empty());
}

TEST_F(IdentityTest, ASecretThatCannotBeWrittenDownIsNotUsed) {
  SecretFile file = Open();
  StartOn(&file);
  std::filesystem::remove_all(folder_);
  GiveSecret("secret", 1);
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kSecretKept).empty());
  EXPECT_EQ(file.secret(), "");
  // It goes on without; the coordinator gives it again at the next registration.
  coordinator_.Break("cut");
  loop_.Advance(seconds(1));
  EXPECT_EQ(coordinator_.heard.front().register_().node_secret(), "");
  std::filesystem::create_directory(folder_);
  GiveSecret("secret", 1);
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kSecretKept).size(), 1u);
}

TEST_F(IdentityTest, ADamagedSecretAndThatOfAnotherNodeCountAsNone) {
  SecretFile file = Open();
  ASSERT_TRUE(file.Keep("secret", 2).ok());
  EXPECT_EQ(Open().secret(), "secret");
  EXPECT_EQ(Open("node-b").secret(), "");
  const std::string path = folder_ + "/secret.bin";
  const std::string whole = *base::ReadFile(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(Open().secret(), "") << "byte " << i;
    EXPECT_EQ(Open().generation(), 0);
    std::ofstream(path, std::ios::binary) << whole.substr(0, i);
    EXPECT_EQ(Open().secret(), "") << "cut at " << i;
  }
}

TEST_F(IdentityTest, TellsWhichReportsItKeeps) {
  EXPECT_EQ(coordinator_.heard.front().register_().lowest_seq(), 1);
  EXPECT_EQ(coordinator_.heard.front().register_().newest_seq(), 0);
  StartJob(1);
  CoordinatorMessage ack;
  ack.mutable_report_ack()->set_seq(2);
  coordinator_.Say(ack);
  const auto newest = agent_->session().outbox().newest_seq();
  ASSERT_GT(newest, 2);
  coordinator_.Break("cut");
  loop_.Advance(seconds(1));
  EXPECT_EQ(coordinator_.heard.front().register_().lowest_seq(), 3);
  EXPECT_EQ(coordinator_.heard.front().register_().newest_seq(), newest);
}

}  // namespace
}  // namespace mt::node
