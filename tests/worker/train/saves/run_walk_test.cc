// Random walks of a checkpoint directory over submissions that name a beginning and ones that name
// none, restarts, placements by a coordinator after faults and releases, damage, and copies of the
// directory or of one checkpoint; with saves that are spoiled or not, losses of several measures,
// pins and tags, and the retention of each save by rules that are drawn anew for each attempt. All
// is held against a model of the runs (run_walk.h): each start goes on with the run that the rule
// names, at the newest intact step of that run, so that no step of a run is trained twice but those
// after its last save; a save removes of its own run what no rule keeps, and nothing of another;
// each run has its two newest healthy saves, what is marked, and its best by each measure. Starts
// (fence, choice, run.json), retention, evaluations, pins, tags and copies are the real ones;
// checkpoints are manifests without tensors.
#include "tests/worker/train/saves/run_walk.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/inspect/copy.h"
#include "worker/train/resume.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointId;
using megatrain::v1::JobSpec;

constexpr int64_t kOtherStep = 50;  // of the only checkpoint of the directory "other"

// Jobs by how they say that a run begins.
const std::map<std::string, JobSpec>& Jobs() {
  static const std::map<std::string, JobSpec> jobs = [] {
    std::map<std::string, JobSpec> out;
    out["none"] = TinyJob({});
    out["fresh"] = TinyJob({"checkpoint.fresh=true"});
    out["load"] = TinyJob({"checkpoint.load=other"});
    out["weights"] = TinyJob({"checkpoint.load=other", "checkpoint.load_kind=weights"});
    return out;
  }();
  return jobs;
}

// A folder in memory where that can be: thousands of starts write their files durably.
class WalkDir {
 public:
  WalkDir() {
    const char* const memory = "/dev/shm";
    if (!base::Exists(memory)) return;
    std::string pattern = std::string(memory) + "/mt-walk-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) in_memory_ = pattern;
  }
  ~WalkDir() {
    std::error_code ignored;
    if (!in_memory_.empty()) fs::remove_all(in_memory_, ignored);
  }
  WalkDir(const WalkDir&) = delete;
  WalkDir& operator=(const WalkDir&) = delete;
  const std::string& path() const { return in_memory_.empty() ? on_disk_.path() : in_memory_; }

 private:
  const TempDir on_disk_;
  std::string in_memory_;
};

// What all walks together have come by.
struct Seen {
  int64_t starts = 0;
  int64_t refused = 0;
  int64_t bound = 0;
  int64_t copies = 0;
  int64_t removed = 0;   // saves
  int64_t for_loss = 0;  // saves that nothing but their loss has kept from a removal
};

class Walk {
 public:
  Walk(uint32_t seed, const std::string& top, Seen* seen)
      : dice_(seed), root_(fs::path(top) / std::to_string(seed)), seen_(seen) {
    WriteCheckpoint("other", {kOtherStep, 1}, base::NewUid(), /*spoiled=*/false);
  }

  // One of the operations; false: the walk has gone wrong.
  bool Act() { return Do(dice_.Draw(12)) && Check(); }
  const std::string& said() const { return said_; }

 private:
  // One start that trains.
  struct Attempt {
    const StartPoint* start = nullptr;
    std::string run;
    checkpoint::RetentionRules rules;
    checkpoint::Measure measure;
    std::map<CheckpointId, std::string> known = {};  // PruneArgs::known
    int healthy = 0;                                 // saves
  };

  bool Do(int what) {
    std::optional<checkpoint::ResumeBase> expected;
    switch (what) {
      case 0:
        return dice_.OneIn(3) ? CopyOne() : Copy();
      case 1:
        Damage();
        return true;
      case 2:  // submit --restart, or resume --fresh of a job that has saved
        token_ = base::NewUid();
        token_beginning_ = dice_.Beginning();
        [[fallthrough]];
      case 3:  // a job that was submitted so is placed again
        if (token_.empty()) return true;
        if (dice_.OneIn(2)) expected = BaseOfLast();
        return Submit({.beginning = token_beginning_, .token = token_, .base = expected});
      case 4:
      case 5:  // a job that has lost its ranks, or was released, is placed again
        expected = BaseOfLast();
        if (!expected) return true;
        return Submit({.beginning = dice_.Beginning(),
                       .token = dice_.OneIn(2) ? runs_.all.at(last_).restart : "",
                       .base = expected});
      default:
        return Submit({.beginning = dice_.Beginning()});
    }
  }

  std::string Folder(const std::string& directory, const CheckpointId& id) const {
    return (root_ / directory / checkpoint::FolderName(id)).string();
  }
  // Returns the manifest's digest.
  std::string WriteCheckpoint(const std::string& directory, const CheckpointId& id,
                              const std::string& run, bool spoiled) const {
    checkpoint::Manifest manifest;
    manifest.step = id.step;
    manifest.epoch = id.epoch;
    manifest.run = run;
    manifest.spoiled = spoiled;
    manifest.world_size = 1;
    manifest.spec_json = "{}";
    const std::string text = checkpoint::ToJson(manifest);
    fs::create_directories(Folder(directory, id));
    std::ofstream(Folder(directory, id) + "/manifest.json") << text;
    return checkpoint::ManifestDigest(text);
  }

  bool Say(const std::string& what) {
    said_ += what + "\n";
    return false;
  }
  bool IsOk(const Status& status, const std::string& what) {
    return status.ok() || Say(what + ": " + status.ToString());
  }

  // After each operation: the files are those that were saved and not removed by the rules of their
  // own run, and each run has what none may lose.
  bool Check() {
    std::set<std::string> found, differ;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(root_ / directory_, none_yet)) {
      if (fs::exists(entry.path() / "manifest.json"))
        found.insert(entry.path().filename().string());
    }
    const std::set<std::string> there = runs_.There();
    std::ranges::set_symmetric_difference(found, there, std::inserter(differ, differ.end()));
    if (!differ.empty())
      return Say(fmt::format("gone, or still there: {}", fmt::join(differ, " ")));
    if (!fs::exists(fs::path(Folder("other", {kOtherStep, 1})) / "manifest.json"))
      return Say("what a run began from is gone");
    const std::string lost = runs_.Lost();
    return lost.empty() || Say(lost);
  }

  // What the coordinator knows of the run of the last start: its newest save.
  std::optional<checkpoint::ResumeBase> BaseOfLast() {
    const auto last = runs_.all.find(last_);
    if (last == runs_.all.end() || last->second.saved.empty()) return std::nullopt;
    const WalkSave& newest = last->second.saved.back();
    checkpoint::ResumeBase base;
    base.job_uid = "job";
    base.step = newest.id.step;
    base.epoch = newest.id.epoch;
    if (dice_.OneIn(2)) base.digest = newest.digest;
    base.run = last_;
    return base;
  }

  bool Submit(const WalkRequest& asked) {
    const WalkStart expects = runs_.Expect(asked);
    said_ += fmt::format("{} {}: expects run {}, step {}{}\n", asked.beginning, asked.token,
                         expects.run, expects.step.value_or(-1), expects.bound ? ", bound" : "");
    ++seen_->starts;
    seen_->bound += expects.bound ? 1 : 0;
    checkpoint::Exchange alone(nullptr, nullptr);
    JobSpec job = Jobs().at(asked.beginning);
    if (directory_ != "tiny") job.mutable_checkpoint()->set_directory(directory_);
    StartArgs args{.job = &job, .checkpoint_root = root_.string(), .job_uid = ""};
    args.restart = asked.token;
    args.base = asked.base ? &*asked.base : nullptr;
    auto start = FindStart(args, &alone);
    if (!expects.step) return IsRefused(start.status(), expects.bound);
    if (!start.ok()) return Say("refused: " + start.status().ToString());
    const auto named = NameRun(args, &*start, &alone);
    if (!named.ok()) return Say("no run: " + named.status().ToString());
    return Compare(*start, *named, expects) && Join(*named, asked, expects) &&
           Train(*start, named->record.id);
  }

  bool IsRefused(const Status& status, bool bound) {
    ++seen_->refused;
    const std::string why(base::Message(status));
    const bool named = bound
                           ? absl::IsFailedPrecondition(status)
                           : absl::IsDataLoss(status) && why.find("--restart") != std::string::npos;
    return named || Say("not refused: " + why);
  }

  bool Compare(const StartPoint& start, const NamedRun& named, const WalkStart& expects) {
    const int64_t got = start.load && !start.weights ? start.load->step : 0;
    if (got != expects.step.value_or(-1)) return Say(fmt::format("begins at step {}", got));
    const bool goes_on = !expects.run.empty() && runs_.all.at(expects.run).here;
    if (named.begins == goes_on) return Say("begins, or goes on, against the rule");
    if (goes_on && named.record.id != expects.run)
      return Say("goes on with run " + named.record.id);
    if (!goes_on && runs_.all.contains(named.record.id)) return Say("begins with another's id");
    return true;
  }

  // The model takes in the start.
  bool Join(const NamedRun& named, const WalkRequest& asked, const WalkStart& expects) {
    last_ = named.record.id;
    const auto [at, is_new] = runs_.all.try_emplace(last_);
    WalkRun& run = at->second;
    run.newest_start = ++starts_;
    if (!is_new) return true;
    run.beginning = expects.beginning;
    run.restart = asked.token;
    if (!expects.run.empty()) {
      const WalkRun& parent = runs_.all.at(expects.run);
      if (asked.token.empty()) run.restart = parent.restart;
      run.source = parent.saved.empty() ? parent.source : expects.run;
    }
    return named.record.parent.empty() == run.source.empty() ||
           Say("parent: " + named.record.parent);
  }

  // Saves some steps; what it trains after the last one is lost in a fault, unless it is released.
  bool Train(const StartPoint& start, const std::string& id) {
    WalkRun& run = runs_.all.at(id);
    Attempt attempt{.start = &start, .run = id, .rules = dice_.Rules(), .measure = dice_.Measure()};
    const bool is_own = start.load_directory == start.directory;
    for (WalkSave& one : run.saved) {
      // One that an attempt before had no time to evaluate.
      const bool is_loaded = is_own && start.load == one.id;
      if (is_loaded && !one.evaluated && !Evaluate(attempt, &one)) return false;
    }
    int64_t step = start.load && !start.weights ? start.load->step : 0;
    for (int saves = dice_.Draw(6); saves > 0; --saves) {
      step += 1 + dice_.Draw(9);
      if (!Save(&attempt, step, &run)) return false;
      if (dice_.OneIn(8) && !Mark(&run)) return false;
    }
    return true;
  }

  bool Save(Attempt* attempt, int64_t step, WalkRun* run) {
    WalkSave& one = run->saved.emplace_back();
    one.id = {step, attempt->start->epoch};
    one.spoiled = dice_.OneIn(4);
    one.digest = WriteCheckpoint(directory_, one.id, attempt->run, one.spoiled);
    attempt->healthy += one.spoiled ? 0 : 1;
    // An evaluation ends before the save of its step, or after it.
    const bool early = dice_.OneIn(2);
    if (early && !Evaluate(*attempt, &one)) return false;
    return Prune(attempt, run) && (early || Evaluate(*attempt, &one));
  }

  // Most saves get a loss; that of a spoiled one is the lowest.
  bool Evaluate(const Attempt& attempt, WalkSave* one) {
    if (dice_.OneIn(3)) return true;
    one->evaluated = true;
    one->loss = one->spoiled ? 0.5 : 1 + dice_.Draw(6);
    one->measure = attempt.measure;
    return IsOk(checkpoint::WriteEvaluation(Folder(directory_, one->id), {.split = "valid",
                                                                          .step = one->id.step,
                                                                          .loss = one->loss,
                                                                          .tokens = 64,
                                                                          .measure = one->measure}),
                "not evaluated");
  }

  // As after each save: what no rule keeps of the run is removed, and nothing else.
  bool Prune(Attempt* attempt, WalkRun* run) {
    const StartPoint& start = *attempt->start;
    checkpoint::PruneArgs args;
    args.directory = start.directory;
    args.rules = attempt->rules;
    if (attempt->healthy < 2 && start.load_directory == start.directory)
      args.rules.base = start.load;
    args.epoch = start.epoch;
    args.fence = start.fence ? &*start.fence : nullptr;
    args.run = attempt->run;
    args.known = &attempt->known;
    const auto removed = checkpoint::PruneCheckpoints(args);
    if (!removed.ok()) return Say("not pruned: " + removed.status().ToString());
    std::set<std::string> gone(removed->begin(), removed->end());
    const WalkRun before = *run;
    for (size_t i = 0; i < before.saved.size(); ++i) {
      const WalkSave& one = before.saved[i];
      if (!one.there) continue;
      const std::string name = checkpoint::FolderName(one.id);
      const std::string_view why = WhyKept(before, one, args.rules);
      run->saved[i].there = gone.erase(name) == 0;
      if (run->saved[i].there == why.empty())
        return Say(fmt::format("{} {}, but {}", name, why.empty() ? "stays" : "is removed",
                               why.empty() ? "no rule keeps it" : why));
      seen_->removed += why.empty() ? 1 : 0;
      seen_->for_loss += why == kKeptForItsLoss ? 1 : 0;
    }
    if (!gone.empty()) return Say(fmt::format("removes what is not its own: {}", *gone.begin()));
    if (attempt->rules.keep_best > 0) return true;
    for (WalkSave& one : run->saved) one.given_up = !one.there;
    return true;
  }

  // A save of the run is pinned, or gets the tag of the directory.
  bool Mark(WalkRun* run) {
    WalkSave& one =
        run->saved.at(static_cast<size_t>(dice_.Draw(static_cast<int>(run->saved.size()))));
    if (!one.there) return true;
    if (dice_.OneIn(2)) {
      one.pinned = true;
      return IsOk(checkpoint::WritePin(Folder(directory_, one.id), "a walk"), "not pinned");
    }
    for (auto& [id, other] : runs_.all) {
      for (WalkSave& save : other.saved) save.tagged = false;
    }
    one.tagged = true;
    return IsOk(
        checkpoint::WriteLabel((root_ / directory_).string(), one.id, {.tag = "mark", .meta = {}}),
        "no tag");
  }

  // Any run; end: there is none.
  std::map<std::string, WalkRun>::iterator AnyRun() {
    // By their starts: the order of their ids differs each time.
    std::map<int64_t, std::string> by_start;
    for (const auto& [id, run] : runs_.all) by_start.emplace(run.newest_start, id);
    if (by_start.empty()) return runs_.all.end();
    auto at = by_start.begin();
    std::advance(at, dice_.Draw(static_cast<int>(by_start.size())));
    return runs_.all.find(at->second);
  }

  // The newest intact checkpoint of any run, or all of them.
  void Damage() {
    const auto at = AnyRun();
    if (at == runs_.all.end()) return;
    std::vector<WalkSave>& saved = at->second.saved;
    for (WalkSave& one : saved) one.was_behind = one.was_behind || !one.there;
    bool more = true;
    for (const bool all = dice_.OneIn(2); more; more = all) {
      const WalkSave* const newest = NewestIntact(saved);
      if (newest == nullptr) return;
      saved[static_cast<size_t>(newest - saved.data())].intact = false;
      std::ofstream(Folder(directory_, newest->id) + "/manifest.json") << "{";
      said_ += "damaged: " + Folder(directory_, newest->id) + "\n";
    }
  }

  // The walk goes on in a copy; the directory is gone, as one that was moved: less to list.
  void GoOnIn(const std::string& copy) {
    fs::remove_all(root_ / directory_);
    directory_ = copy;
    for (auto& [id, run] : runs_.all) run.here = false;
    said_ += "copied to " + copy + "\n";
    ++seen_->copies;
  }

  // cp -r: with its list of runs.
  bool Copy() {
    if (!fs::exists(root_ / directory_)) return true;
    const std::string to = fmt::format("copy{}", ++copies_);
    fs::copy(root_ / directory_, root_ / to, fs::copy_options::recursive);
    GoOnIn(to);
    return true;
  }

  // `checkpoint copy` of any run's newest intact one: without a list, and with nothing else.
  bool CopyOne() {
    const auto at = AnyRun();
    if (one_alone_ || at == runs_.all.end()) return true;
    const WalkSave* const newest = NewestIntact(at->second.saved);
    if (newest == nullptr) return true;
    one_alone_ = true;
    const std::string to = fmt::format("copy{}", ++copies_);
    checkpoint::CopyArgs args;
    args.from = {.directory = (root_ / directory_).string(),
                 .id = newest->id,
                 .folder = Folder(directory_, newest->id)};
    args.to = (root_ / to).string();
    const auto copied = checkpoint::CopyCheckpoint(args);
    if (!copied.ok()) return Say("not copied: " + copied.status().ToString());
    WalkRun run;
    run.newest_start = at->second.newest_start;
    run.listed = false;
    run.saved.push_back(*newest);
    run.saved.back().pinned = false;
    const std::string id = at->first;
    runs_.all.clear();
    runs_.all.emplace(id, std::move(run));
    GoOnIn(to);
    return true;
  }

  WalkDice dice_;
  const fs::path root_;
  Seen* const seen_;
  std::string directory_ = "tiny";
  WalkRuns runs_{{{"none", 0}, {"fresh", 0}, {"load", kOtherStep}, {"weights", 0}}};
  int64_t starts_ = 0;
  int copies_ = 0;
  bool one_alone_ = false;  // the directory began with one checkpoint that was copied into it
  std::string token_, token_beginning_;
  std::string last_;  // the run of the last start
  std::string said_;
};

// A tenth of the walks: none takes longer than a test may, and they run side by side.
class RunWalkTest : public testing::TestWithParam<int> {};

TEST_P(RunWalkTest, EachStartGoesOnWithItsOwnRun) {
  const WalkDir dir;
  Seen seen;
  const int walks = std::getenv("MT_LONG_TESTS") != nullptr ? 5'000 : 50;
  for (int seed = GetParam() * walks + 1; seed <= (GetParam() + 1) * walks; ++seed) {
    Walk walk(static_cast<uint32_t>(seed), dir.path(), &seen);
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(walk.Act()) << "seed " << seed << "\n" << walk.said();
    }
    fs::remove_all(fs::path(dir.path()) / std::to_string(seed));
  }
  // The walks come by all of it.
  EXPECT_GT(seen.starts, 3 * walks);
  EXPECT_GT(seen.bound, walks / 4);
  EXPECT_GT(seen.copies, walks / 8);
  EXPECT_GT(seen.refused, 0);
  EXPECT_GT(seen.removed, walks / 2);
  EXPECT_GT(seen.for_loss, walks / 10);
}

// Of the tenths three where all takes fifty times as long.
INSTANTIATE_TEST_SUITE_P(Tenths, RunWalkTest, testing::Range(0, kSanitized ? 3 : 10));

}  // namespace
}  // namespace mt::train
