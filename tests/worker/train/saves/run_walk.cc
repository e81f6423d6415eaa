// Every question is answered by a count over all saves of a run.
#include "tests/worker/train/saves/run_walk.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "worker/checkpoint/format/directory.h"

namespace mt::train {

const WalkSave* NewestIntact(const std::vector<WalkSave>& saved) {
  for (auto one = saved.rbegin(); one != saved.rend(); ++one) {
    if (one->there && one->intact) return &*one;
  }
  return nullptr;
}

std::string_view WhyKept(const WalkRun& run, const WalkSave& one,
                         const checkpoint::RetentionRules& rules) {
  int64_t healthy = 0, newer_healthy = 0, newer_spoiled = 0, better = 0;
  for (const WalkSave& other : run.saved) {
    if (!other.there) continue;
    const bool is_newer = checkpoint::IsNewer(other.id, one.id);
    if (other.healthy()) ++healthy;
    if (is_newer && other.healthy()) ++newer_healthy;
    if (is_newer && !other.healthy()) ++newer_spoiled;
    if (!other.judged() || other.measure != one.measure) continue;
    if (other.loss < one.loss || (other.loss == one.loss && is_newer)) ++better;
  }
  const int64_t last = std::max<int64_t>(rules.keep_last, 2);
  if (newer_healthy + newer_spoiled == 0) return "it is the newest";
  if (one.healthy() && newer_healthy < last) return "it is one of the newest healthy ones";
  if (!one.healthy() && healthy + newer_spoiled < last) return "it has a place that is left";
  if (rules.keep_every > 0 && one.id.step % rules.keep_every == 0) return "its step is divided";
  if (rules.base == one.id) return "the attempt went on from it";
  if (one.marked()) return "it is pinned or has a tag";
  if (one.judged() && better < rules.keep_best) return kKeptForItsLoss;
  return "";
}

std::string LostOf(const WalkRun& run) {
  int healthy = 0;
  std::map<checkpoint::Measure, const WalkSave*> best;
  for (auto one = run.saved.rbegin(); one != run.saved.rend(); ++one) {
    const bool is_newest = one == run.saved.rbegin();
    const bool counts = one->healthy() && !one->was_behind;
    const bool is_of_two = counts && healthy < 2;
    if (counts) ++healthy;
    if (!one->there && (is_newest || is_of_two || one->marked())) {
      return fmt::format("{} is gone ({})", checkpoint::FolderName(one->id),
                         is_newest       ? "the newest"
                         : one->marked() ? "it is pinned or has a tag"
                                         : "one of the two newest healthy ones");
    }
    if (!one->judged()) continue;
    const WalkSave*& lowest = best[one->measure];
    if (lowest == nullptr || one->loss < lowest->loss) lowest = &*one;
  }
  for (const auto& [measure, one] : best) {
    if (!one->there)
      return fmt::format("{} is gone (the best by {})", checkpoint::FolderName(one->id),
                         measure.kind);
  }
  return "";
}

// The run that a start without a base is of; empty: one begins.
std::string WalkRuns::NewestRun(const WalkRequest& asked) const {
  std::string newest;
  int64_t highest = -1;
  for (const auto& [id, run] : all) {
    const bool meant = asked.token.empty()
                           ? asked.beginning == "none" || run.beginning == asked.beginning
                           : run.restart == asked.token;
    if (!meant || run.newest_start <= highest) continue;
    highest = run.newest_start;
    newest = id;
  }
  return newest;
}

// Saves that a run goes on from: its own, else those that it is a copy of; nullptr: it has none.
const std::vector<WalkSave>* WalkRuns::GoesOnFrom(const WalkRun& run) const {
  if (!run.saved.empty()) return &run.saved;
  const auto source = all.find(run.source);
  return source == all.end() ? nullptr : &source->second.saved;
}

WalkStart WalkRuns::Expect(const WalkRequest& asked) const {
  WalkStart out{.run = NewestRun(asked), .beginning = asked.beginning, .step = {}};
  if (asked.base) {
    // A run that begins on purpose expects nothing of what was saved before, unless its list was
    // lost: then it may have begun.
    const std::string& expected = asked.base->run;
    out.bound =
        asked.token.empty() || (out.run.empty() ? !all.at(expected).listed : out.run == expected);
    if (out.bound) out.run = expected;
  }
  const std::vector<WalkSave>* from = nullptr;
  if (!out.run.empty()) {
    const WalkRun& run = all.at(out.run);
    if (run.listed) out.beginning = run.beginning;
    from = GoesOnFrom(run);
  }
  if (from == nullptr || from->empty()) {
    out.step = first_steps_.at(out.beginning);
  } else if (const WalkSave* const newest = NewestIntact(*from); newest != nullptr) {
    out.step = newest->id.step;
  }
  return out;
}

std::set<std::string> WalkRuns::There() const {
  std::set<std::string> out;
  for (const auto& [id, run] : all) {
    for (const WalkSave& one : run.saved) {
      if (one.there) out.insert(checkpoint::FolderName(one.id));
    }
  }
  return out;
}

std::string WalkRuns::Lost() const {
  for (const auto& [id, run] : all) {
    const std::string lost = LostOf(run);
    if (!lost.empty()) return fmt::format("run {}: {}", id, lost);
  }
  return "";
}

std::string WalkDice::Beginning() {
  static constexpr std::array kNames = {"none", "none", "none", "fresh", "load", "weights"};
  return kNames.at(static_cast<size_t>(Draw(6)));
}

checkpoint::RetentionRules WalkDice::Rules() {
  static constexpr std::array<int64_t, 4> kEvery = {0, 0, 5, 7};
  checkpoint::RetentionRules rules;
  rules.keep_last = Draw(4);
  rules.keep_every = kEvery.at(static_cast<size_t>(Draw(4)));
  rules.keep_best = Draw(3);
  return rules;
}

checkpoint::Measure WalkDice::Measure() {
  static constexpr std::array kKinds = {checkpoint::kRolling, checkpoint::kFixed,
                                        checkpoint::kSplit};
  checkpoint::Measure measure;
  if (OneIn(6)) return measure;
  const std::string_view kind = kKinds.at(static_cast<size_t>(Draw(3)));
  measure.kind = std::string(kind);
  measure.samples = kind == checkpoint::kSplit ? 0 : 8;
  measure.data = OneIn(4) ? "xxh3:1" : "xxh3:0";
  return measure;
}

}  // namespace mt::train
