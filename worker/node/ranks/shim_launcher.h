// RankLauncher by mt-shim: each rank is started under its own shim, which collects its exit and
// outlives this process. For a job that is to stop with its agent the shim holds the read end of a
// pipe of this process, whose end, however it comes, ends the rank. Shims and ranks are watched by
// pidfds, whoever has started them.
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
    std::string socket;   // that ranks call
    int grace_ms = 5000;  // SIGTERM to SIGKILL (P5)
  };

  ShimLauncher(AsioEventLoop* loop, Config config);
  ~ShimLauncher() override;  // closes the pipes; the loop no longer runs

  void SetListener(Listener* listener) override { listener_ = listener; }
  Status Start(LaunchId launch, const RankLaunch& args) override;
  int Adopt(LaunchId launch, const std::string& folder) override;
  void Terminate(LaunchId launch) override;
  void Kill(LaunchId launch) override;

 private:
  struct Child {
    std::string folder;
    base::Fd stop_pipe;  // write end
    base::Fd shim;       // pidfd; empty: it is gone
    int child_pid = 0;   // of a shim that this process has started
    base::Fd rank;       // pidfd, where the shim is gone and the rank is not
    int rank_pid = 0;
    bool ending = false;
    std::string damage;  // why its exit will not be told as recorded
  };

  std::vector<std::string> Arguments(const RankLaunch& args) const;
  Status Watch(const base::Fd& process, std::function<void()> ended);
  Status WatchShim(LaunchId launch, base::Fd shim);
  void OnShimEnded(LaunchId launch);
  // Where the shim is gone: tells how the rank ended, or watches the rank itself.
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
