// The names of actions, in the order of the enum.
#include "daemon/jobs/job_actions.h"

namespace mt::daemon {

std::string_view ActionName(JobAction action) {
  static constexpr std::array<std::string_view, kNumJobActions> kNames = {"clear Waiting",
                                                                          "await slots",
                                                                          "await release",
                                                                          "await the next epoch",
                                                                          "await acceptance",
                                                                          "forget failures",
                                                                          "free slots",
                                                                          "forget ranks",
                                                                          "retry later",
                                                                          "await base",
                                                                          "settle base",
                                                                          "command hold",
                                                                          "command resume",
                                                                          "command stop",
                                                                          "forget stop",
                                                                          "amend stop",
                                                                          "hold at start",
                                                                          "run at start",
                                                                          "check ranks",
                                                                          "record verdict",
                                                                          "forget verdict",
                                                                          "aim at stop",
                                                                          "kill unless stopping",
                                                                          "kill ranks",
                                                                          "await exit",
                                                                          "close epoch",
                                                                          "finish",
                                                                          "free older epochs",
                                                                          "follow goal",
                                                                          "stop again",
                                                                          "settle operations",
                                                                          "follow resume",
                                                                          "fail operations",
                                                                          "fail saves"};
  return kNames[static_cast<size_t>(action)];
}

}  // namespace mt::daemon
