// What a fault costs a job: which budget of resilience.max_restarts (R1) another epoch is counted
// against, whether that is spent, and how long the job waits (R2). Pure; thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/control/rank_exit_codes.h"

namespace megatrain::v1 {
class JobSpec;
class Restarts;
}  // namespace megatrain::v1

namespace mt::daemon {

struct Verdict;

// A code by which the rank ended tells it, except of OOM and HANG, which no code does; without one
// the cause.
control::RestartBudget BudgetOf(const Verdict& verdict);
// "infrastructure"; the field of resilience.max_restarts, which a message names.
std::string_view BudgetName(control::RestartBudget budget);

// A fault of an epoch.
struct RestartFacts {
  control::RestartBudget budget{};
  int64_t step = 0;      // the last step that was done
  int64_t now_us = 0;    // Unix time
  int64_t ready_us = 0;  // when the epoch's ranks were ready; 0: they were not
  std::string_view job_uid = {};
};

struct RestartChoice {
  bool allowed = false;
  bool no_progress = false;  // refused since too many epochs in a row came no further
  std::string why = {};      // refused since that budget is spent; empty: there is none for it
};

// Counts another epoch against the budgets of the spec, or leaves `spent` as it is where it is
// refused.
RestartChoice SpendRestart(const megatrain::v1::JobSpec& spec, const RestartFacts& facts,
                           megatrain::v1::Restarts* spent);
// The fault that the newest epoch was counted for is another one's consequence: it is counted
// against `to` instead of `from`. Refused as above; then it is counted against neither.
RestartChoice MoveRestart(const megatrain::v1::JobSpec& spec, control::RestartBudget from,
                          const RestartFacts& to, megatrain::v1::Restarts* spent);
// It was no failure after all, nor one of those in a row.
void RefundRestart(control::RestartBudget budget, megatrain::v1::Restarts* spent);

// R2: how long to wait before the n-th retry in a row, from 1: none, base, twice that, up to the
// cap.
std::chrono::seconds RetryDelay(int retries);
// The same with the jitter that `uid` and the number give.
std::chrono::microseconds RestartDelay(int retries, std::string_view uid);

}  // namespace mt::daemon
