// The rules of the header, one branch each.
#include "worker/node/ranks/fault_attribution.h"

#include <utility>

#include <fmt/format.h>

#include "common/control/rank_exit_codes.h"
#include "megatrain/v1/types.pb.h"

namespace mt::node {

void FaultAttribution::OnFault(const LocalRank& rank) {
  const bool own = rank.fault.exit_code != control::kExitTransient;
  if (own && culprit_ < 0 && !ending_) culprit_ = rank.rank;
}

void FaultAttribution::OnEnd(const std::string& reason, bool asked) {
  ending_ = true;
  end_asked_ = asked;
  end_reason_ = reason;
}

RankConclusion FaultAttribution::Conclude(int rank, bool at_fault, const RankVerdict& verdict,
                                          std::string message) const {
  const bool ended_here = ending_ && culprit_ < 0;
  return {.rank = rank,
          .at_fault = at_fault,
          .cause = ended_here ? megatrain::v1::INTERNAL : verdict.cause,
          .message = std::move(message),
          .fence_epoch = verdict.fence_epoch};
}

FaultAttribution::Outcome FaultAttribution::OnExit(const LocalRank& rank,
                                                   const std::string& where) {
  RankVerdict verdict = JudgeExit(rank.exit, rank.fault);
  if (verdict.clean)
    return {.conclusions = {Conclude(rank.rank, false, verdict, "")}, .abort_reason = {}};
  verdict.message += where;
  const std::string how = verdict.message;
  if (culprit_ >= 0 && culprit_ != rank.rank && !culprit_concluded_) {
    // The coordinator judges by what it hears first.
    waiting_[rank.rank] = std::move(verdict);
    return {};
  }
  if (culprit_ >= 0 && culprit_ != rank.rank) {
    std::string message = fmt::format("ended after rank {} failed: {}", culprit_, how);
    return {.conclusions = {Conclude(rank.rank, false, verdict, std::move(message))},
            .abort_reason = {}};
  }
  if (culprit_ < 0 && ending_) {
    return {.conclusions = {Conclude(rank.rank, !end_asked_, verdict, end_reason_)},
            .abort_reason = {}};
  }
  if (culprit_ < 0 && (rank.killed_by_agent || verdict.transient)) {
    waiting_[rank.rank] = std::move(verdict);
    return {.conclusions = {}, .abort_reason = fmt::format("rank {} left: {}", rank.rank, how)};
  }
  culprit_ = rank.rank;
  culprit_concluded_ = true;
  Outcome outcome{.conclusions = {Conclude(rank.rank, true, verdict, how)},
                  .abort_reason = fmt::format("rank {} failed: {}", rank.rank, how)};
  for (const auto& [other, left] : std::exchange(waiting_, {})) {
    outcome.conclusions.push_back(Conclude(
        other, false, left, fmt::format("ended after rank {} failed: {}", culprit_, left.message)));
  }
  return outcome;
}

std::vector<RankConclusion> FaultAttribution::OnAllGone() {
  std::vector<RankConclusion> conclusions;
  for (const auto& [rank, verdict] : std::exchange(waiting_, {})) {
    conclusions.push_back(Conclude(rank, true, verdict, verdict.message));
  }
  return conclusions;
}

}  // namespace mt::node
