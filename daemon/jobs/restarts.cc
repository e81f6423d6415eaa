// Budgets by their fields, and delays.
#include "daemon/jobs/restarts.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/control/numbers.h"
#include "daemon/jobs/verdict.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;
using control::RestartBudget;

constexpr int64_t kWindowUs =
    std::chrono::duration_cast<std::chrono::microseconds>(control::kRestartWindow).count();
constexpr int64_t kHealthyUs =
    std::chrono::duration_cast<std::chrono::microseconds>(control::kRestartReset).count();

int64_t LimitOf(const v1::Resilience::MaxRestarts& limits, RestartBudget budget) {
  switch (budget) {
    case RestartBudget::kNever:
      return 0;
    case RestartBudget::kUser:
      return limits.user();
    case RestartBudget::kHang:
      return limits.hang();
    case RestartBudget::kStorage:
      return limits.storage();
    case RestartBudget::kInfrastructure:
      return limits.infra_per_hour();
  }
  return 0;
}

void DropOld(int64_t now_us, v1::Restarts* spent) {
  auto* times = spent->mutable_infrastructure_us();
  const auto kept = std::ranges::find_if(
      *times, [now_us](int64_t time_us) { return now_us - time_us < kWindowUs; });
  times->erase(times->begin(), kept);
}

// What counts against the budget now.
int64_t SpentOf(RestartBudget budget, const v1::Restarts& spent) {
  switch (budget) {
    case RestartBudget::kNever:
      return 0;
    case RestartBudget::kUser:
      return spent.user();
    case RestartBudget::kHang:
      return spent.hang();
    case RestartBudget::kStorage:
      return spent.storage();
    case RestartBudget::kInfrastructure:
      return spent.infrastructure_us_size();
  }
  return 0;
}

void Count(RestartBudget budget, int by, int64_t now_us, v1::Restarts* spent) {
  switch (budget) {
    case RestartBudget::kNever:
      return;
    case RestartBudget::kUser:
      return spent->set_user(std::max(0, spent->user() + by));
    case RestartBudget::kHang:
      return spent->set_hang(std::max(0, spent->hang() + by));
    case RestartBudget::kStorage:
      return spent->set_storage(std::max(0, spent->storage() + by));
    case RestartBudget::kInfrastructure:
      spent->set_infrastructure(std::max(0, spent->infrastructure() + by));
      if (by > 0) {
        spent->add_infrastructure_us(now_us);
      } else if (!spent->infrastructure_us().empty()) {
        spent->mutable_infrastructure_us()->RemoveLast();
      }
      return;
  }
}

// Whether the budget has room for one more; `spent` is of now.
RestartChoice Ask(const v1::Resilience::MaxRestarts& limits, RestartBudget budget,
                  const v1::Restarts& spent) {
  const int64_t limit = LimitOf(limits, budget);
  if (limit == 0) return {};
  if (SpentOf(budget, spent) < limit) return {.allowed = true};
  return {.why = fmt::format("all {} restarts of resilience.max_restarts.{} are spent", limit,
                             BudgetName(budget))};
}

// FNV-1a.
uint64_t HashOf(std::string_view text, int number) {
  uint64_t hash = 14695981039346656037ULL;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 1099511628211ULL; };
  for (const char c : text) add(static_cast<uint8_t>(c));
  add(static_cast<uint8_t>(number));
  return hash;
}

}  // namespace

RestartBudget BudgetOf(const Verdict& verdict) {
  if (verdict.cause == v1::OOM) return RestartBudget::kUser;
  if (verdict.cause == v1::HANG) return RestartBudget::kHang;
  if (verdict.exit_code != 0) return control::MeaningOfExit(verdict.exit_code).budget;
  switch (verdict.cause) {
    case v1::USER_ERROR:
    case v1::NUMERIC:
    case v1::DEADLINE:
    case v1::NO_PROGRESS:
      return RestartBudget::kNever;
    case v1::STORAGE:
      return RestartBudget::kStorage;
    default:
      return RestartBudget::kInfrastructure;
  }
}

std::string_view BudgetName(RestartBudget budget) {
  switch (budget) {
    case RestartBudget::kNever:
      return "never";
    case RestartBudget::kUser:
      return "user";
    case RestartBudget::kHang:
      return "hang";
    case RestartBudget::kStorage:
      return "storage";
    case RestartBudget::kInfrastructure:
      return "infra_per_hour";
  }
  return "never";
}

RestartChoice SpendRestart(const v1::JobSpec& spec, const RestartFacts& facts,
                           v1::Restarts* spent) {
  const v1::Resilience::MaxRestarts& limits = spec.resilience().max_restarts();
  v1::Restarts next = *spent;
  DropOld(facts.now_us, &next);
  RestartChoice choice = Ask(limits, facts.budget, next);
  if (!choice.allowed) return choice;
  next.set_no_progress(facts.step > next.best_step() ? 0 : next.no_progress() + 1);
  if (next.no_progress() > limits.no_progress()) {
    return {.no_progress = true,
            .why = fmt::format("no step beyond step {} in {} restarts "
                               "(resilience.max_restarts.no_progress)",
                               next.best_step(), spent->no_progress())};
  }
  next.set_best_step(std::max(next.best_step(), facts.step));
  Count(facts.budget, +1, facts.now_us, &next);
  const bool healthy = facts.ready_us > 0 && facts.now_us - facts.ready_us >= kHealthyUs;
  next.set_in_a_row(healthy ? 1 : next.in_a_row() + 1);
  const std::chrono::microseconds delay = RestartDelay(next.in_a_row(), facts.job_uid);
  next.set_not_before_us(delay.count() == 0 ? 0 : facts.now_us + delay.count());
  *spent = std::move(next);
  return choice;
}

RestartChoice MoveRestart(const v1::JobSpec& spec, RestartBudget from, const RestartFacts& to,
                          v1::Restarts* spent) {
  Count(from, -1, 0, spent);
  DropOld(to.now_us, spent);
  RestartChoice choice = Ask(spec.resilience().max_restarts(), to.budget, *spent);
  if (choice.allowed) Count(to.budget, +1, to.now_us, spent);
  return choice;
}

void RefundRestart(RestartBudget budget, v1::Restarts* spent) {
  Count(budget, -1, 0, spent);
  spent->set_no_progress(std::max(0, spent->no_progress() - 1));
  spent->set_in_a_row(std::max(0, spent->in_a_row() - 1));
}

std::chrono::seconds RetryDelay(int retries) {
  if (retries < 2) return std::chrono::seconds(0);
  const int doublings = std::min(retries - 2, 10);
  return std::min(control::kRetryBase * (1 << doublings), control::kRetryCap);
}

std::chrono::microseconds RestartDelay(int retries, std::string_view uid) {
  constexpr int64_t kSteps = 1'000;
  const std::chrono::microseconds delay = RetryDelay(retries);
  const auto at = static_cast<int64_t>(HashOf(uid, retries) % (2 * kSteps + 1)) - kSteps;
  const double factor =
      1 + control::kRestartJitter * static_cast<double>(at) / static_cast<double>(kSteps);
  return std::chrono::microseconds(
      static_cast<int64_t>(static_cast<double>(delay.count()) * factor));
}

}  // namespace mt::daemon
