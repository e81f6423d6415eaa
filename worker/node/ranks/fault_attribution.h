// Decides which rank of one job and epoch on this node is to blame for its failure, from the order
// in which ranks report faults and end. Pure; loop thread only.
//
// A rank that ends by a signal, or with an exit code or report of its own, is the culprit and
// concluded at fault (FAULTED); the first one counts, and is concluded before all others. A rank
// that ends with 75 (transient: it lost a peer), or that the agent has killed, is a consequence as
// long as a culprit may still show up: its conclusion waits until the culprit's, with which it is
// not at fault ("ended after rank ..."), or until all ranks of this node have ended (then the cause
// lies on another node, and it is at fault, NETWORK). Ranks that end because they were told to are
// not at fault if the coordinator asked for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/node/ranks/local_rank.h"
#include "worker/node/ranks/rank_verdict.h"

namespace megatrain::v1 {
enum Cause : int;
}

namespace mt::node {

// How the end of a rank is to be reported.
struct RankConclusion {
  int rank = 0;                  // world rank
  bool at_fault = false;         // FAULTED; otherwise DONE
  megatrain::v1::Cause cause{};  // meaningful if at fault
  std::string message;
  int64_t fence_epoch = 0;  // RankReport.fence_epoch
};

class FaultAttribution {
 public:
  struct Outcome {
    std::vector<RankConclusion> conclusions;  // to report now, in this order
    std::string abort_reason;  // why the other ranks must be ended; empty: they need not be
  };

  // The rank has reported a fault of its own (LocalRank::fault) and will end.
  void OnFault(const LocalRank& rank);
  // All ranks are told to end. `asked`: by the coordinator.
  void OnEnd(const std::string& reason, bool asked);
  // OnEnd was called.
  bool ending() const { return ending_; }
  // The rank has ended (LocalRank::exit). `where`: what is added to the message if it failed
  // (StallWatch::WhereItStood).
  Outcome OnExit(const LocalRank& rank, const std::string& where);
  // All ranks have ended: concludes those that still wait, in order of their world ranks.
  std::vector<RankConclusion> OnAllGone();

 private:
  RankConclusion Conclude(int rank, bool at_fault, const RankVerdict& verdict,
                          std::string message) const;

  int culprit_ = -1;  // world rank; -1: none known
  bool culprit_concluded_ = false;
  bool ending_ = false;
  bool end_asked_ = false;
  std::string end_reason_;
  std::map<int, RankVerdict> waiting_;  // ended, not concluded; by world rank
};

}  // namespace mt::node
