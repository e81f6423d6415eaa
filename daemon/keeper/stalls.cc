// When a stall is news, and what the condition says of all ranks.
#include "daemon/keeper/stalls.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/report/stall_text.h"
#include "common/spec/derived.h"
#include "daemon/keeper/conditions.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

constexpr char kCondition[] = "NoProgress";
constexpr int kMostNamed = 4;

bool IsSilent(const v1::RankStatus& rank) { return rank.stall().last_beat_us() != 0; }

// "4 of 4 ranks stand still; without a beat: rank 3 (tp 1, pp 0) on node-a".
std::string Summary(const v1::Job& job) {
  int stalled = 0, silent = 0;
  std::string names;
  for (const v1::RankStatus& rank : job.ranks()) {
    stalled += rank.has_stall() ? 1 : 0;
    if (!IsSilent(rank)) continue;
    if (++silent > kMostNamed) continue;
    const std::string place = spec::RankPlaceText(job.spec(), rank.rank());
    names += fmt::format("{}rank {}{} on {}", names.empty() ? "" : ", ", rank.rank(),
                         place.empty() ? "" : fmt::format(" ({})", place), rank.node());
  }
  std::string text = fmt::format("{} of {} ranks stand still", stalled, job.ranks_size());
  if (silent > 0) text += "; without a beat: " + names;
  if (silent > kMostNamed) text += fmt::format(" and {} more", silent - kMostNamed);
  return text;
}

void ShowCondition(Ledger* ledger, v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  const bool stalled = std::ranges::any_of(
      job->ranks(), [](const v1::RankStatus& rank) { return rank.has_stall(); });
  if (stalled) {
    SetCondition(job, kCondition, Summary(*job), ledger->NowMicros());
  } else if (ClearCondition(job, kCondition)) {
    ledger->AddEvent({.type = "ProgressResumed",
                      .message = "no rank stands still any more",
                      .job_uid = job->uid(),
                      .step = job->last_step().step()});
  } else {
    return;
  }
  ledger->MarkJob(stored, Change::kState);
}

}  // namespace

void NoteStall(Ledger* ledger, v1::StoredJob& stored, int rank, const v1::RankStatus& before) {
  const v1::RankStatus& now = stored.job().ranks(rank);
  if (!now.has_stall() && !before.has_stall()) return;
  const bool is_news = !before.has_stall() || IsSilent(now) != IsSilent(before);
  if (now.has_stall() && is_news) {
    const std::string text = report::StalledRankText(
        now, spec::RankPlaceText(stored.job().spec(), rank), ledger->NowMicros());
    ledger->AddEvent({.type = "RankStalled",
                      .message = text,
                      .job_uid = stored.job().uid(),
                      .node = now.node(),
                      .step = now.step()});
    log::Warn("a rank shows no progress", {{"job", stored.job().name()}, {"what", text}});
  }
  ShowCondition(ledger, stored);
}

void ForgetStalls(Ledger* ledger, v1::StoredJob& stored, const std::string& node) {
  bool changed = false;
  for (v1::RankStatus& rank : *stored.mutable_job()->mutable_ranks()) {
    if (rank.node() != node || !rank.has_stall()) continue;
    rank.clear_stall();
    changed = true;
  }
  if (changed) ShowCondition(ledger, stored);
}

}  // namespace mt::daemon
