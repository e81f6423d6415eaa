// The options of mt-worker: labels, addresses that need --insecure, and the configuration file.
#include "worker/node/agent/options.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

namespace mt::node {
namespace {

class OptionsTest : public testing::Test {
 protected:
  // Parses with programs that exist. Returns the exit code, or -1 if the program would run.
  int Parse(std::vector<std::string> arguments) {
    std::vector<std::string> all = {"mt-worker", "--rank-binary=/bin/true",
                                    "--shim-binary=/bin/true"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& text : all) argv.push_back(text.data());
    options_ = AgentOptions();
    ExitNow exit_now{.code = -1};
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const bool ok =
        ParseAgentOptions(static_cast<int>(argv.size()), argv.data(), &options_, &exit_now);
    error_ = testing::internal::GetCapturedStderr();
    output_ = testing::internal::GetCapturedStdout();
    return ok ? -1 : exit_now.code;
  }

  AgentOptions options_;
  std::string error_;
  std::string output_;
};

TEST_F(OptionsTest, Labels) {
  ASSERT_EQ(Parse({"--label", "zone=a", "--label=mt.io/disk=nvme-1", "--label", "empty="}), -1)
      << error_;
  EXPECT_EQ(options_.labels, (std::map<std::string, std::string>{
                                 {"zone", "a"}, {"mt.io/disk", "nvme-1"}, {"empty", ""}}));
  for (const char* bad : {"zone", "=a", "a b=c", "a=b c", "a=b=c", ""}) {
    EXPECT_EQ(Parse({"--label", bad}), 64) << bad;
    EXPECT_NE(error_.find("--label"), std::string::npos) << error_;
  }
  EXPECT_FALSE(ParseLabel(std::string(64, 'a') + "=b").ok());
  EXPECT_TRUE(ParseLabel(std::string(63, 'a') + "=b").ok());
}

TEST_F(OptionsTest, CacheLimit) {
  ASSERT_EQ(Parse({}), -1) << error_;
  EXPECT_EQ(options_.cache_limit, int64_t{16} << 30);
  ASSERT_EQ(Parse({"--cache-limit", "4GiB"}), -1) << error_;
  EXPECT_EQ(options_.cache_limit, int64_t{4} << 30);
  ASSERT_EQ(Parse({"--cache-limit=500MB"}), -1) << error_;
  EXPECT_EQ(options_.cache_limit, 500'000'000);
  for (const char* bad : {"much", "-1", "4 parsecs"}) {
    EXPECT_EQ(Parse({"--cache-limit", bad}), 64) << bad;
    EXPECT_NE(error_.find("--cache-limit"), std::string::npos) << error_;
  }
}

TEST_F(OptionsTest, LimitsOfSilence) {
  ASSERT_EQ(Parse({}), -1) << error_;
  EXPECT_EQ(options_.stall_after, 60);
  EXPECT_EQ(options_.frozen_after, 10);
  ASSERT_EQ(Parse({"--stall-after=7", "--frozen-after=3"}), -1) << error_;
  EXPECT_EQ(options_.stall_after, 7);
  EXPECT_EQ(options_.frozen_after, 3);
  EXPECT_EQ(Parse({"--frozen-after=2"}), 64);
  EXPECT_NE(error_.find("--frozen-after"), std::string::npos) << error_;
}

TEST_F(OptionsTest, BeyondThisMachineNeedsInsecure) {
  for (const std::string flag :
       {"--address=10.0.0.7", "--address=node-1.example", "--address=0.0.0.0",
        "--http-listen=0.0.0.0:7072", "--http-listen=[::]:7072"}) {
    EXPECT_EQ(Parse({flag}), 64) << flag;
    EXPECT_NE(error_.find(flag.substr(0, flag.find('='))), std::string::npos) << error_;
    EXPECT_NE(error_.find("--insecure"), std::string::npos) << error_;
    EXPECT_EQ(Parse({flag, "--insecure"}), -1) << flag << error_;
    EXPECT_TRUE(options_.insecure);
  }
  for (const std::string flag : {"--address=127.0.0.5", "--address=localhost", "--address=::1",
                                 "--http-listen=[::1]:1", "--http-listen=localhost:0"}) {
    EXPECT_EQ(Parse({flag}), -1) << flag << error_;
  }
}

TEST_F(OptionsTest, HttpListen) {
  ASSERT_EQ(Parse({}), -1);
  EXPECT_EQ(options_.http_listen->ToString(), "127.0.0.1:7072");
  EXPECT_FALSE(options_.http_asked);
  ASSERT_EQ(Parse({"--http-listen=127.0.0.1:9"}), -1);
  EXPECT_EQ(options_.http_listen->port, 9);
  EXPECT_TRUE(options_.http_asked);
  ASSERT_EQ(Parse({"--http-listen=none"}), -1);
  EXPECT_FALSE(options_.http_listen.has_value());
  EXPECT_EQ(Parse({"--http-listen=unix:/x.sock"}), 64);
}

TEST_F(OptionsTest, CheckConfigPrintsNothing) {
  EXPECT_EQ(Parse({"--check-config", "--cpu-slots=2"}), 0);
  EXPECT_EQ(output_ + error_, "");
  EXPECT_EQ(Parse({"--check-config", "--cpu-slots=-1"}), 64);
  EXPECT_NE(error_, "");
  EXPECT_EQ(Parse({"--check-config", "--rank-binary=/no/such"}), 64);
}

TEST_F(OptionsTest, Gpus) {
  ASSERT_EQ(Parse({}), -1);
  EXPECT_EQ(options_.gpus, "all");
  EXPECT_FALSE(options_.cpu_slots.has_value());
  ASSERT_EQ(Parse({"--cpu-slots=0", "--gpus=GPU-8c5c3b0e-01,GPU-2"}), -1) << error_;
  EXPECT_EQ(options_.gpus, "GPU-8c5c3b0e-01,GPU-2");
  EXPECT_EQ(options_.cpu_slots, 0);
  for (const char* bad :
       {"0", "", "GPU-", "GPU-1,GPU-1", "GPU-1,", "every", "MIG-1", "GPU-1 GPU-2"}) {
    EXPECT_EQ(Parse({"--gpus", bad}), 64) << bad;
    EXPECT_NE(error_.find("--gpus"), std::string::npos) << error_;
  }
  EXPECT_EQ(Parse({"--gpus=none", "--cpu-slots=0"}), 64);
  EXPECT_NE(error_.find("nothing would be offered"), std::string::npos) << error_;
}

TEST_F(OptionsTest, StopRanksNeedsNoPrograms) {
  ASSERT_EQ(Parse({"stop-ranks", "--state", "/x/y", "--rank-binary=/no/such"}), -1) << error_;
  EXPECT_TRUE(options_.stop_ranks);
  EXPECT_EQ(options_.state, "/x/y");
  ASSERT_EQ(Parse({}), -1);
  EXPECT_FALSE(options_.stop_ranks);
}

TEST_F(OptionsTest, JoinTakesAClusterAndNeedsNoPrograms) {
  ASSERT_EQ(Parse({"join", "a-cluster", "--state", "/x/y", "--rank-binary=/no/such"}), -1)
      << error_;
  EXPECT_EQ(options_.join, "a-cluster");
  EXPECT_EQ(options_.state, "/x/y");
  EXPECT_EQ(Parse({"join", "--state", "/x/y"}), 64);
}

TEST_F(OptionsTest, TheFileHasTheSameNamesAndFlagsWin) {
  char pattern[] = "/tmp/mt-options-XXXXXX";
  const std::string dir = mkdtemp(pattern);
  const std::string path = dir + "/worker.yaml";
  std::ofstream(path) << "cpu_slots: 3\nnode: from-file\ninsecure: true\naddress: 10.0.0.7\n"
                         "label: [zone=a, disk=nvme]\ngpus: [GPU-1, GPU-2]\n";
  ASSERT_EQ(Parse({"--config", path, "--node=from-flag", "--label=zone=b"}), -1) << error_;
  EXPECT_EQ(options_.gpus, "GPU-1,GPU-2");
  EXPECT_EQ(options_.cpu_slots, 3);
  EXPECT_EQ(options_.node, "from-flag");
  EXPECT_EQ(options_.address, "10.0.0.7");
  EXPECT_EQ(options_.labels, (std::map<std::string, std::string>{{"zone", "b"}, {"disk", "nvme"}}));
  for (const char* bad :
       {"cpu_slot: 3\n", "node: [a, b]\n", "check_config: true\n", "- 1\n", "a: {\n"}) {
    std::ofstream(path) << bad;
    EXPECT_EQ(Parse({"--config", path}), 64) << bad;
    EXPECT_NE(error_.find(path), std::string::npos) << error_;
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace mt::node
