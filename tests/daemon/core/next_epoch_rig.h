// Jobs with budgets for another epoch, and ranks that die.
#pragma once

#include <string>
#include <vector>

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

class NextEpochTest : public CoreTest {
 protected:
  static constexpr char kFew[] =
      "resilience: {max_restarts: {user: 1, hang: 1, storage: 1, infra_per_hour: 4, "
      "no_progress: 2}}\n";

  static v1::WorkerMessage Exit(const v1::Job& job, int rank, int code, int signal = 0,
                                v1::Cause cause = v1::CAUSE_UNSPECIFIED) {
    v1::WorkerMessage message = RankMessage(job, rank, v1::FAULTED);
    v1::RankReport& report = *message.mutable_rank_report();
    report.set_cause(cause);
    report.mutable_status()->set_exited(true);
    report.mutable_status()->set_exit_code(code);
    report.mutable_status()->set_exit_signal(signal);
    return message;
  }
  // What is under way gets its ranks, which are ready.
  v1::Job Start(const std::string& uid, const std::vector<Worker*>& workers) {
    const v1::Job job = Get(uid);
    EXPECT_EQ(job.state(), v1::ADMITTED) << job.message();
    for (Worker* worker : workers) Accept(*worker, job);
    for (const v1::RankStatus& rank : job.ranks()) {
      for (Worker* worker : workers) {
        if (worker->node == rank.node()) Report(*worker, RankMessage(job, rank.rank(), v1::READY));
      }
    }
    return Get(uid);
  }
  static v1::Assign LastAssign(const Worker& worker) {
    v1::Assign last;
    for (const auto& message : worker.link->received) {
      if (message.has_assign()) last = message.assign();
    }
    return last;
  }
  static std::string SlotsOf(const v1::Job& job) {
    std::string text;
    for (const v1::RankStatus& rank : job.ranks())
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", rank.node(), rank.slot());
    return text;
  }
  // Rank 0, on its own, dies so and is gone.
  void Die(Worker& worker, const std::string& uid, int code, int signal = 0,
           v1::Cause cause = v1::CAUSE_UNSPECIFIED) {
    const v1::Job job = Get(uid);
    Report(worker, Exit(job, 0, code, signal, cause));
    Gone(worker, job);
  }
  void TellStep(Worker& worker, const std::string& uid, int64_t step) {
    Report(worker, StepsMessage(Get(uid), step, step));
  }
};

}  // namespace mt::daemon
