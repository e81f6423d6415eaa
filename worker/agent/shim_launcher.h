// RankLauncher by mt-shim: each rank is started under its own shim, which holds the read end of a
// pipe of this process; the end of the agent, however it comes, ends the pipe and with it the rank.
// The shim is the agent's child and ends after its rank.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/rank_launcher.h"

namespace mt::agent {

class ShimLauncher final : public RankLauncher {
 public:
  struct Config {
    std::string shim_binary;
    std::string rank_binary;
    std::string socket;   // that ranks call
    int grace_ms = 5000;  // SIGTERM to SIGKILL (P5)
  };

  ShimLauncher(EventLoop* loop, Config config);
  ~ShimLauncher() override;  // closes the pipes: what still runs is ended by its shim

  void SetListener(Listener* listener) override { listener_ = listener; }
  Status Start(LaunchId launch, const RankLaunch& args) override;
  void Terminate(LaunchId launch) override;
  void Kill(LaunchId launch) override;

  // Collects ended shims; to be called on SIGCHLD.
  void ReapChildren();

 private:
  struct Child {
    int shim_pid = 0;
    base::Fd stop_pipe;  // write end
    std::string folder;
  };

  std::vector<std::string> Arguments(const RankLaunch& args) const;
  RankExit ReadExit(const Child& child, int shim_status);
  void Signal(LaunchId launch, int signal_number);

  EventLoop* loop_;
  const Config config_;
  Listener* listener_ = nullptr;
  std::map<LaunchId, Child> children_;
};

}  // namespace mt::agent
