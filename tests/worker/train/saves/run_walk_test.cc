// Random walks of a checkpoint directory over submissions that name a beginning and ones that name
// none, restarts, placements by a coordinator, faults, damage and copies, held against a model of
// its runs: each start goes on with the run that the rule names, at the newest intact step of that
// run, so that no step of a run is trained twice but those after its last save; no start removes a
// checkpoint; and a save, by whatever rules and measure of its job, those of its run alone that no
// rule keeps. Starts are whole (fence, choice, run.json); checkpoints are manifests without
// tensors.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/retention.h"
#include "worker/train/resume.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointId;
using megatrain::v1::JobSpec;

constexpr int64_t kOtherStep = 50;  // of the only checkpoint of the directory "other"

struct Saved {
  CheckpointId id;
  bool intact = true;
  double loss = 0;
  std::string measure;  // of the loss; empty: it was not evaluated
};

// A run of the directory, as the model has it.
struct ModelRun {
  std::string beginning;  // the job's that began it: a key of Jobs()
  std::string restart;
  std::string source;  // of a copy without checkpoints of its own: the run that it is a copy of
  std::vector<Saved> saved;
  int64_t newest_start = 0;
  bool here = true;
};

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

int64_t FirstStepOf(const std::string& beginning) { return beginning == "load" ? kOtherStep : 0; }

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

class Walk {
 public:
  Walk(uint32_t seed, const std::string& top) : random_(seed) {
    root_ = fs::path(top) / std::to_string(seed);
    fs::create_directories(root_ / "other");
    WriteCheckpoint("other", {kOtherStep, 1}, base::NewUid());
  }

  // One of the operations; false: the walk has gone wrong.
  bool Act() {
    switch (Draw(10)) {
      case 0:
        return Copy();
      case 1:
        Damage();
        return true;
      case 2:
        return Submit(AnyBeginning(), NewToken());
      case 3:  // a job that was submitted so is placed again
        return Submit(token_beginning_, token_);
      case 4:
        return Place();
      default:
        return Submit(AnyBeginning(), "");
    }
  }
  const std::string& said() const { return said_; }

 private:
  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  std::string AnyBeginning() {
    static const std::vector<std::string> names = {"none",  "none", "none",
                                                   "fresh", "load", "weights"};
    return names[static_cast<size_t>(Draw(static_cast<int>(names.size())))];
  }
  std::string NewToken() {
    token_ = base::NewUid();
    token_beginning_ = AnyBeginning();
    return token_;
  }
  std::string Folder(const std::string& directory, const CheckpointId& id) const {
    return (root_ / directory / checkpoint::FolderName(id)).string();
  }
  void WriteCheckpoint(const std::string& directory, const CheckpointId& id,
                       const std::string& run) const {
    checkpoint::Manifest manifest;
    manifest.step = id.step;
    manifest.epoch = id.epoch;
    manifest.run = run;
    manifest.world_size = 1;
    manifest.spec_json = "{}";
    fs::create_directories(Folder(directory, id));
    std::ofstream(Folder(directory, id) + "/manifest.json") << checkpoint::ToJson(manifest);
  }
  std::set<std::string> Folders() const {
    std::set<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.path().filename() == "manifest.json") out.insert(entry.path().string());
    }
    return out;
  }

  // The run that a start is of by the rule; "": one begins.
  std::string Expected(const std::string& beginning, const std::string& token) const {
    std::string best;
    int64_t highest = -1;
    for (const auto& [id, run] : runs_) {
      const bool meant =
          token.empty() ? beginning == "none" || run.beginning == beginning : run.restart == token;
      if (!meant || run.newest_start <= highest) continue;
      highest = run.newest_start;
      best = id;
    }
    return best;
  }
  // Checkpoints that a run goes on from: its own, else those that it is a copy of.
  const std::vector<Saved>* CheckpointsOf(const ModelRun& run) const {
    if (!run.saved.empty()) return &run.saved;
    const auto source = runs_.find(run.source);
    return source == runs_.end() ? nullptr : &source->second.saved;
  }
  // The newest intact one; nullopt: none is.
  static std::optional<int64_t> NewestOf(const std::vector<Saved>& saved) {
    for (auto one = saved.rbegin(); one != saved.rend(); ++one) {
      if (one->intact) return one->id.step;
    }
    return std::nullopt;
  }

  bool Say(const std::string& what) {
    said_ += what + "\n";
    return false;
  }

  // A job that has lost its ranks is placed again: the coordinator knows its run's newest step.
  bool Place() {
    const auto last = runs_.find(last_);
    if (last == runs_.end() || last->second.saved.empty()) return true;
    const CheckpointId& newest = last->second.saved.back().id;
    checkpoint::ResumeBase expects{.job_uid = "job", .step = newest.step, .epoch = newest.epoch};
    expects.run = last_;
    return Submit(AnyBeginning(), "", &expects);
  }

  bool Submit(const std::string& beginning, const std::string& token,
              const checkpoint::ResumeBase* expects = nullptr) {
    if (token.empty() && beginning.empty()) return true;  // nothing was restarted yet
    const std::string expected = expects == nullptr ? Expected(beginning, token) : expects->run;
    const ModelRun* const known = expected.empty() ? nullptr : &runs_.at(expected);
    const std::vector<Saved>* const from = known == nullptr ? nullptr : CheckpointsOf(*known);
    const std::string began = known == nullptr ? beginning : known->beginning;
    const std::optional<int64_t> step =
        from == nullptr || from->empty() ? FirstStepOf(began) : NewestOf(*from);
    said_ += fmt::format("{} {}: expects run {}, step {}\n", beginning, token, expected,
                         step.value_or(-1));
    const std::set<std::string> before = Folders();
    checkpoint::Exchange alone(nullptr, nullptr);
    StartArgs args{.job = &Jobs().at(beginning), .checkpoint_root = root_.string(), .job_uid = ""};
    args.restart = token;
    args.base = expects;
    if (directory_ != "tiny") {
      job_ = Jobs().at(beginning);
      job_.mutable_checkpoint()->set_directory(directory_);
      args.job = &job_;
    }
    auto start = FindStart(args, &alone);
    if (!step) {
      const std::string why(base::Message(start.status()));
      const bool named = expects != nullptr ? absl::IsFailedPrecondition(start.status())
                                            : absl::IsDataLoss(start.status()) &&
                                                  why.find("--restart") != std::string::npos;
      return (named && Folders() == before) || Say("not refused: " + why);
    }
    if (!start.ok()) return Say("refused: " + start.status().ToString());
    const auto named = NameRun(args, &*start, &alone);
    if (!named.ok()) return Say("no run: " + named.status().ToString());
    if (Folders() != before) return Say("a checkpoint is gone");
    return Compare(*start, *named, expected, *step) &&
           Train(*start, *named, began, token, expected);
  }

  bool Compare(const StartPoint& start, const NamedRun& named, const std::string& expected,
               int64_t step) {
    const int64_t got = start.load && !start.weights ? start.load->step : 0;
    if (got != step) return Say(fmt::format("begins at step {}", got));
    const bool goes_on = !expected.empty() && runs_.at(expected).here;
    if (named.begins == goes_on) return Say("begins, or goes on, against the rule");
    if (goes_on && named.record.id != expected) return Say("goes on with run " + named.record.id);
    if (!goes_on && runs_.contains(named.record.id)) return Say("begins with another's id");
    return true;
  }

  // Saves some steps, and ends in a fault.
  bool Train(const StartPoint& start, const NamedRun& named, const std::string& beginning,
             const std::string& token, const std::string& expected) {
    const auto [at, is_new] = runs_.try_emplace(named.record.id);
    ModelRun& run = at->second;
    if (is_new) {
      run.beginning = beginning;
      run.restart = token;
      if (!expected.empty()) {
        const ModelRun& parent = runs_.at(expected);
        if (token.empty()) run.restart = parent.restart;
        const bool is_copy = !parent.saved.empty() || !parent.source.empty();
        run.source = parent.saved.empty() ? parent.source : expected;
        if (is_copy == named.record.parent.empty()) return Say("parent: " + named.record.parent);
      } else if (!named.record.parent.empty()) {
        return Say("has a parent: " + named.record.parent);
      }
    }
    run.newest_start = ++starts_;
    last_ = named.record.id;
    const checkpoint::RetentionRules rules{
        .keep_last = 2 + Draw(3), .keep_every = Draw(2) * 5, .keep_best = Draw(3)};
    const std::string measure = AnyMeasure();
    int64_t step = start.load && !start.weights ? start.load->step : 0;
    for (int saves = Draw(4); saves > 0; --saves) {
      step += 1 + Draw(9);
      run.saved.push_back({.id = {step, start.epoch}});
      WriteCheckpoint(directory_, run.saved.back().id, named.record.id);
      const bool ends_first = Draw(2) == 0;  // then the next save prunes
      if (!ends_first && !Prune(start, named.record.id, rules, &run.saved)) return false;
      if (!measure.empty()) Evaluate(measure, &run.saved.back());
    }
    return true;
  }

  // What a job evaluates on; "": it does not.
  std::string AnyMeasure() {
    static const std::vector<std::string> measures = {"", "rolling", "fixed", "split"};
    return measures[static_cast<size_t>(Draw(static_cast<int>(measures.size())))];
  }
  void Evaluate(const std::string& measure, Saved* saved) {
    saved->measure = measure;
    saved->loss = Draw(6);
    const Status written =
        checkpoint::WriteEvaluation(Folder(directory_, saved->id), {.split = "valid",
                                                                    .step = saved->id.step,
                                                                    .loss = saved->loss,
                                                                    .measure = {.kind = measure}});
    EXPECT_TRUE(written.ok()) << written;
  }

  // Whether a rule keeps the one at `at` of those that its run has saved, oldest first.
  static bool IsKept(const checkpoint::RetentionRules& rules, const std::vector<Saved>& saved,
                     size_t at) {
    const Saved& one = saved[at];
    if (static_cast<int64_t>(saved.size() - at) <= rules.keep_last) return true;
    if (rules.keep_every > 0 && one.id.step % rules.keep_every == 0) return true;
    if (one.measure.empty()) return false;
    int64_t better = 0;
    for (size_t other = 0; other < saved.size(); ++other) {
      if (other == at || saved[other].measure != one.measure) continue;
      if (saved[other].loss < one.loss || (saved[other].loss == one.loss && other > at)) ++better;
    }
    return better < rules.keep_best;
  }
  bool Prune(const StartPoint& start, const std::string& run,
             const checkpoint::RetentionRules& rules, std::vector<Saved>* saved) {
    std::set<std::string> left = Folders();
    std::vector<Saved> kept;
    for (size_t at = 0; at < saved->size(); ++at) {
      if (IsKept(rules, *saved, at)) {
        kept.push_back((*saved)[at]);
      } else {
        left.erase(Folder(directory_, (*saved)[at].id) + "/manifest.json");
      }
    }
    const auto removed =
        checkpoint::PruneCheckpoints({.directory = start.directory,
                                      .rules = rules,
                                      .epoch = start.epoch,
                                      .fence = start.fence ? &*start.fence : nullptr,
                                      .run = run});
    if (!removed.ok()) return Say("not pruned: " + removed.status().ToString());
    if (Folders() != left) return Say(fmt::format("removed: {}", fmt::join(*removed, ", ")));
    *saved = std::move(kept);
    return true;
  }

  // The newest intact checkpoint of any run.
  void Damage() {
    if (runs_.empty()) return;
    auto at = runs_.begin();
    std::advance(at, Draw(static_cast<int>(runs_.size())));
    std::vector<Saved>& saved = at->second.saved;
    const auto newest =
        std::find_if(saved.rbegin(), saved.rend(), [](const Saved& one) { return one.intact; });
    if (newest == saved.rend()) return;
    newest->intact = false;
    std::ofstream(Folder(directory_, newest->id) + "/manifest.json") << "{";
    said_ += "damaged: " + Folder(directory_, newest->id) + "\n";
  }

  // The directory is copied, and the walk goes on in the copy.
  bool Copy() {
    if (!fs::exists(root_ / directory_)) return true;
    const std::string to = fmt::format("copy{}", ++copies_);
    fs::copy(root_ / directory_, root_ / to, fs::copy_options::recursive);
    fs::remove_all(root_ / directory_);  // as a directory that was moved: less to list
    directory_ = to;
    for (auto& [id, run] : runs_) run.here = false;
    said_ += "copied to " + to + "\n";
    return true;
  }

  std::mt19937 random_;
  fs::path root_;
  std::string directory_ = "tiny";
  JobSpec job_;
  std::map<std::string, ModelRun> runs_;
  int64_t starts_ = 0;
  int copies_ = 0;
  std::string token_, token_beginning_;
  std::string last_;  // the run of the last start
  std::string said_;
};

// A tenth of the walks: none takes longer than a test may, and they run side by side.
class RunWalkTest : public testing::TestWithParam<int> {};

TEST_P(RunWalkTest, EachStartGoesOnWithItsOwnRun) {
  const WalkDir dir;
  const int walks = std::getenv("MT_LONG_TESTS") != nullptr ? 5'000 : 50;
  for (int seed = GetParam() * walks + 1; seed <= (GetParam() + 1) * walks; ++seed) {
    Walk walk(static_cast<uint32_t>(seed), dir.path());
    for (int i = 0; i < 12; ++i) {
      ASSERT_TRUE(walk.Act()) << "seed " << seed << "\n" << walk.said();
    }
    fs::remove_all(fs::path(dir.path()) / std::to_string(seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Tenths, RunWalkTest, testing::Range(0, 10));

}  // namespace
}  // namespace mt::train
