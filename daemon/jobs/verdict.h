// Says why a job failed: what a rank's end means. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace megatrain::v1 {
enum Cause : int;
class RankReport;
}  // namespace megatrain::v1

namespace mt::daemon {

// Why a job failed.
struct Verdict {
  megatrain::v1::Cause cause;
  int rank = -1;  // -1: no particular rank
  std::string message;
  std::vector<std::string> last_log_lines;
  // True for a mere consequence of another rank's end (exit code 75, a broken connection): a better
  // verdict may replace it.
  bool secondary = false;
  // True where the rank itself says why it left, and it was not another one's end: no kill explains
  // that.
  bool own_fault = false;
  // By which the rank ended; 0: by none. With the cause it says whether another epoch may help
  // (restarts.h).
  int exit_code = 0;
};

// True where the report says that the rank failed: state FAULTED, a signal, or an exit code other
// than 0.
bool IsFailure(const megatrain::v1::RankReport& report);
// The verdict on a failed rank; its message names rank, node, signal or exit code.
Verdict JudgeRank(const megatrain::v1::RankReport& report);
// The cause for a rank that gave none (docs/design/control-plane.md#exit-codes).
megatrain::v1::Cause CauseOfExit(int exit_code, int exit_signal);

}  // namespace mt::daemon
