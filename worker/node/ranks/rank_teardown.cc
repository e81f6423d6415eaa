// The kill timer of an abort runs on beside a later End: whichever is sooner kills.
#include "worker/node/ranks/rank_teardown.h"

#include <utility>

#include "megatrain/v1/rank.pb.h"

namespace mt::node {

RankTeardown::RankTeardown(Deps deps, RankSet* ranks) : deps_(deps), ranks_(ranks) {}

RankTeardown::~RankTeardown() { Finish(); }

void RankTeardown::Finish() { deps_.loop->Cancel(std::exchange(kill_timer_, EventLoop::kNoTimer)); }

void RankTeardown::SendExit(const LocalRank& rank) {
  megatrain::v1::AgentMessage message;
  message.mutable_exit()->set_reason(reason_);
  deps_.links->Send(rank.link, message);
}

void RankTeardown::Abort(const std::string& reason) {
  if (aborting_ || ending_) return;
  aborting_ = true;
  reason_ = reason;
  for (const LocalRank& rank : ranks_->all()) {
    const bool leaving = rank.gone || rank.fault.exit_code != 0;
    if (!leaving && rank.link != kNoLink) SendExit(rank);
  }
  kill_timer_ = deps_.loop->After(deps_.abort_kill, [this] {
    for (LocalRank& rank : ranks_->all()) {
      if (rank.gone) continue;
      rank.killed_by_agent = true;
      deps_.launcher->Kill(rank.launch);
    }
  });
}

void RankTeardown::End(const std::string& reason) {
  if (!ending_) reason_ = reason;
  ending_ = true;
  for (LocalRank& rank : ranks_->all()) {
    if (rank.gone) continue;
    rank.killed_by_agent = true;
    deps_.launcher->Terminate(rank.launch);
  }
}

void RankTeardown::OnAttach(const LocalRank& rank) {
  if (aborting_) SendExit(rank);
}

}  // namespace mt::node
