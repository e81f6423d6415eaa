// What a random walk of a checkpoint directory (run_walk_test.cc) knows of the directory's runs:
// which run a start is of and where that goes on by the rule of a run's beginning, what retention
// keeps of a run, and what each run has whatever was done. Written from docs and headers alone, by
// counting: nothing here is taken from what it is held against.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/resume_base.h"
#include "worker/checkpoint/retention.h"

namespace mt::train {

struct WalkSave {
  checkpoint::CheckpointId id;
  std::string digest = {};  // of its manifest as it was saved
  bool spoiled = false;
  bool intact = true;
  bool there = true;  // else retention has removed it
  bool pinned = false;
  bool tagged = false;
  bool evaluated = false;
  double loss = 0;
  checkpoint::Measure measure = {};
  bool given_up = false;    // gone under rules that keep no best
  bool was_behind = false;  // gone before another one of its run was damaged

  bool marked() const { return pinned || tagged; }
  bool healthy() const { return !spoiled && intact; }
  bool judged() const { return healthy() && evaluated && !given_up && !was_behind; }
};

struct WalkRun {
  std::string beginning;        // the job's that began it; empty: not known here
  std::string restart = {};     // the token of the request that began it
  std::string source = {};      // of a copy without saves of its own: the run that it is a copy of
  std::vector<WalkSave> saved;  // oldest first, those that are gone included
  int64_t newest_start = 0;
  bool here = true;    // in the directory of the walk, not in one of which that is a copy
  bool listed = true;  // in run.json
};

// A start as a job and the coordinator ask for it.
struct WalkRequest {
  std::string beginning;  // a job's, by how it says that a run begins
  std::string token = {};
  std::optional<checkpoint::ResumeBase> base = {};
};

// What the rule says of a start.
struct WalkStart {
  std::string run;              // that it goes on with, or is a copy of; empty: one begins
  std::string beginning;        // of that run, or of the one that begins
  bool bound = false;           // by the request's base
  std::optional<int64_t> step;  // nullopt: nothing intact is there, and it is refused
};

// The newest one that is there and intact; nullptr: none is.
const WalkSave* NewestIntact(const std::vector<WalkSave>& saved);

inline constexpr std::string_view kKeptForItsLoss = "it is one of the best";
// Why retention by these rules keeps a save of the run, of those that are there; empty: no rule
// does.
std::string_view WhyKept(const WalkRun& run, const WalkSave& one,
                         const checkpoint::RetentionRules& rules);
// What is gone of what a run always has: its newest save, its two newest healthy ones, marked ones,
// and the best by each measure. Empty: nothing is.
std::string LostOf(const WalkRun& run);

class WalkRuns {
 public:
  // `first_steps`: where a run begins, by its beginning.
  explicit WalkRuns(std::map<std::string, int64_t> first_steps)
      : first_steps_(std::move(first_steps)) {}

  WalkStart Expect(const WalkRequest& asked) const;
  // Names of the folders that are there.
  std::set<std::string> There() const;
  // What a run has lost that none may lose; empty: nothing.
  std::string Lost() const;

  std::map<std::string, WalkRun> all;  // by id

 private:
  std::string NewestRun(const WalkRequest& asked) const;
  const std::vector<WalkSave>* GoesOnFrom(const WalkRun& run) const;

  const std::map<std::string, int64_t> first_steps_;
};

// What a walk draws.
class WalkDice {
 public:
  explicit WalkDice(uint32_t seed) : random_(seed) {}

  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  bool OneIn(int of) { return Draw(of) == 0; }
  // WalkRequest::beginning.
  std::string Beginning();
  checkpoint::RetentionRules Rules();
  // What an attempt evaluates on; of earlier versions it is not known.
  checkpoint::Measure Measure();

 private:
  std::mt19937 random_;
};

}  // namespace mt::train
