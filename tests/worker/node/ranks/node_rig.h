// A fixture with a folder, and small shell programs in place of mt-rank under the real mt-shim.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "worker/node/loop/asio_event_loop.h"
#include "worker/node/ranks/shim_launcher.h"

namespace mt::node {

class NodeTest : public testing::Test {
 protected:
  NodeTest() {
    char pattern[] = "/tmp/mt-node-test-XXXXXX";
    dir_ = mkdtemp(pattern);
  }
  ~NodeTest() override { std::filesystem::remove_all(dir_); }

  // Writes a program that replaces mt-rank; it runs in the test's folder.
  std::string Script(const std::string& body) {
    const std::string path = dir_ + "/rank.sh";
    std::ofstream(path) << "#!/bin/sh\ncd " << dir_ << "\n" << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  ShimLauncher::Config Config(const std::string& script, int grace_ms = 600'000) {
    return {.shim_binary = MT_SHIM_BINARY,
            .rank_binary = Script(script),
            .socket = "unix:/x.sock",
            .node = "node-a",
            .grace_ms = grace_ms};
  }
  std::string Folder(int rank) const {
    return fmt::format("{}/job-1-e0002/rank-{:05}", dir_, rank);
  }
  RankLaunch Launch(int rank = 1) {
    return {.job_uid = "job-1",
            .epoch = 2,
            .rank = rank,
            .slot = 1,
            .threads = 3,
            .folder = Folder(rank),
            .log_file = fmt::format("{}/logs/demo/rank-{:05}.log", dir_, rank),
            .token = "secret"};
  }
  static void Await(const std::string& path) {
    while (!base::Exists(path)) ::usleep(2000);
  }

  std::string dir_;
};

// Stops the loop at the end of a rank.
class ExitCatcher final : public RankLauncher::Listener {
 public:
  explicit ExitCatcher(AsioEventLoop* loop) : loop_(loop) {}
  void OnRankGone(LaunchId launch_id, const RankExit& rank_exit) override {
    launch = launch_id;
    exit = rank_exit;
    loop_->Stop();
  }
  LaunchId launch = 0;
  RankExit exit;

 private:
  AsioEventLoop* loop_;
};

}  // namespace mt::node
