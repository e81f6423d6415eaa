// A node has few ranks: every search is a pass over them.
#include "worker/node/ranks/rank_set.h"

#include <algorithm>

#include "common/control/epoch.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {

using megatrain::v1::AllocationRecord;
using megatrain::v1::RankHello;
using megatrain::v1::RankState;

namespace {

// Pointer to the rank with this value of the member; nullptr if there is none. Ranks is a vector of
// LocalRank, const or not.
template <class Ranks, class Value>
auto FindBy(Ranks& ranks, Value LocalRank::*member, Value value) -> decltype(ranks.data()) {
  const auto found = std::ranges::find(ranks, value, member);
  return found == ranks.end() ? nullptr : &*found;
}

}  // namespace

RankSet::RankSet(const AllocationRecord& record, const std::string& rank_state)
    : job_uid_(record.assign().job_uid()), epoch_(record.assign().epoch()) {
  for (const auto& known : record.ranks()) {
    LocalRank rank;
    rank.rank = known.rank();
    rank.slot = known.slot();
    rank.gpu = known.gpu();
    rank.token = known.token();
    rank.log_file = known.log_file();
    rank.folder = RankFolder(rank_state, job_uid_, epoch_, known.rank());
    rank.state = RankState::SPAWNED;
    ranks_.push_back(std::move(rank));
  }
}

LocalRank* RankSet::Find(int rank) { return FindBy(ranks_, &LocalRank::rank, rank); }

LocalRank* RankSet::FindByLink(LinkId link) {
  return link == kNoLink ? nullptr : FindBy(ranks_, &LocalRank::link, link);
}

const LocalRank* RankSet::FindByLink(LinkId link) const {
  return link == kNoLink ? nullptr : FindBy(ranks_, &LocalRank::link, link);
}

LocalRank* RankSet::FindByLaunch(LaunchId launch) {
  return FindBy(ranks_, &LocalRank::launch, launch);
}

const LocalRank* RankSet::FindByLaunch(LaunchId launch) const {
  return FindBy(ranks_, &LocalRank::launch, launch);
}

bool RankSet::UsesSlot(int slot) const {
  return std::ranges::find(ranks_, slot, &LocalRank::slot) != ranks_.end();
}

bool RankSet::UsesGpu(const std::string& uuid) const {
  return std::ranges::find(ranks_, uuid, &LocalRank::gpu) != ranks_.end();
}

std::vector<std::string> RankSet::Gpus() const {
  std::vector<std::string> gpus;
  for (const LocalRank& rank : ranks_) {
    if (!rank.gpu.empty()) gpus.push_back(rank.gpu);
  }
  return gpus;
}

bool RankSet::AllGone() const { return std::ranges::all_of(ranks_, &LocalRank::gone); }

StatusOr<LocalRank*> RankSet::Attach(LinkId link, const RankHello& hello) {
  LocalRank* rank = Find(hello.rank());
  if (rank == nullptr || rank->gone) {
    return base::FailedPrecondition("rank {} of job {} epoch {} does not run on this node",
                                    hello.rank(), job_uid_, control::EpochText(epoch_));
  }
  // An empty token matches nothing: the record that held it was damaged.
  if (rank->token.empty() || rank->token != hello.token()) {
    return base::FailedPrecondition("wrong token for rank {} of job {}", hello.rank(), job_uid_);
  }
  rank->link = link;
  rank->pid = hello.pid();
  rank->step = std::max(rank->step, hello.step());
  if (hello.state() != RankState::RANK_STATE_UNSPECIFIED) {
    rank->state = hello.state();
  } else if (rank->state == RankState::SPAWNED || rank->state == RankState::UNKNOWN) {
    rank->state = RankState::CONNECTED;
  }
  return rank;
}

void RankSet::Describe(const LocalRank& rank, megatrain::v1::RankStatus* out) {
  out->set_rank(rank.rank);
  out->set_slot(rank.slot);
  out->set_gpu(rank.gpu);
  out->set_state(rank.state);
  out->set_pid(rank.pid);
  out->set_exited(rank.end_reported);
  out->set_exit_code(rank.exit.code);
  out->set_exit_signal(rank.exit.signal);
  out->set_exit_unknown(rank.gone && !rank.exit.known);
  out->set_message(rank.final_message);
  out->set_step(rank.step);
}

}  // namespace mt::node
