// Prints what is new of a followed job: states, warnings, evaluations and checkpoints as lines;
// training as one live line, redrawn in place on a terminal, and as an occasional line elsewhere.
// One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "client/session/follow_feed.h"

namespace megatrain::v1 {
class EvalRecord;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::client {

// kStates: changes of the state on stderr, where that is a terminal; elsewhere only that a job that
// has trained waits, and for what.
enum class FollowShow { kNothing, kStates, kAll };

class FollowDisplay {
 public:
  // `samples`: what evaluations have written, too, from now on.
  explicit FollowDisplay(FollowShow show, bool samples = false);
  ~FollowDisplay();

  // All of this was said of the job before: only what comes after is shown.
  void SetTold(const v1::Job& job);
  void Show(const FollowFeed::News& news);
  // Ends the live line, so that following text starts on its own line. `job` may be null.
  void Finish(const v1::Job* job);

 private:
  void ShowCheckpoint(int64_t step, int64_t bytes, double seconds);
  void Line(const std::string& text);
  void ShowLost(bool lost);
  void ShowState(const v1::Job& job);
  void ShowJob(const v1::Job& job);
  void ShowEval(const v1::EvalRecord& eval);
  void Smooth(const v1::StepRecord& step);
  void ShowLive(const v1::Job& job, const std::string& doing);
  void ShowPlain(const v1::Job& job, const std::string& doing);
  std::string Doing(const FollowFeed::News& news);

  const FollowShow show_;
  const bool samples_;
  const bool terminal_;
  std::string live_;  // the live line on the terminal; empty: none
  bool lost_ = false;
  bool resumed_ = false;
  std::string state_, save_error_;
  std::string stopped_;  // the state that was told last where there is no terminal
  std::chrono::steady_clock::time_point state_since_;
  std::set<std::string> conditions_, evals_;
  int64_t checkpoint_ = 0;
  double seconds_per_step_ = 0;
  std::unique_ptr<v1::StepRecord> last_;
  int64_t shown_step_ = 0;
  int doing_kind_ = 0;  // of the activity that was said last elsewhere than on a terminal
  std::chrono::steady_clock::time_point shown_at_;
};

}  // namespace mt::client
