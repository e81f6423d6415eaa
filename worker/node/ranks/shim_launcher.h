// RankLauncher through mt-shim: each rank runs under its own shim, which collects its exit status
// and outlives this process. For a job that stops with its agent the shim holds the read end of a
// pipe whose write end is in this process; when the pipe is closed, for whatever reason, the shim
// ends the rank. Shims and ranks are watched by pidfds, whoever has started them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "worker/node/loop/asio_event_loop.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_record.h"

namespace mt::node {

class ShimLauncher final : public RankLauncher {
 public:
  struct Config {
    std::string shim_binary;
    std::string rank_binary;
    std::string socket;   // the address that ranks call, "unix:/..."
    std::string node;     // this node's name, which ranks are told
    int grace_ms = 5000;  // SIGTERM to SIGKILL (P5)
  };

  ShimLauncher(AsioEventLoop* loop, Config config);
  ~ShimLauncher() override;  // closes the pipes; the loop must not run any more

  void SetListener(Listener* listener) override { listener_ = listener; }
  Status Start(LaunchId launch, const RankLaunch& args) override;
  int Adopt(LaunchId launch, const std::string& folder) override;
  void Terminate(LaunchId launch) override;
  void Kill(LaunchId launch) override;

 private:
  struct Child {
    std::string folder;
    base::Fd stop_pipe;  // write end
    base::Fd shim;       // pidfd; empty once it has ended
    int child_pid = 0;   // the shim, if this process has started it
    base::Fd rank;       // pidfd, if the shim has ended and the rank has not
    int rank_pid = 0;
    bool ending = false;
    std::string damage;  // why exit.json is not to be trusted; empty: it is
  };

  std::vector<std::string> Arguments(const RankLaunch& args) const;
  Status Watch(const base::Fd& process, std::function<void()> ended);
  Status WatchShim(LaunchId launch, base::Fd shim);
  void OnShimEnded(LaunchId launch);
  // The shim has ended: reports how the rank ended, or watches the rank itself.
  void Conclude(LaunchId launch, const std::string& why_unknown);
  void AdoptUnrecorded(LaunchId launch, const std::string& folder);
  void AdoptUnreadable(LaunchId launch, const std::string& folder, const Status& why);
  void Finish(LaunchId launch, RankExit exit);

  AsioEventLoop* loop_;
  const Config config_;
  Listener* listener_ = nullptr;
  std::map<LaunchId, Child> children_;
};

}  // namespace mt::node
