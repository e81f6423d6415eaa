// Random walks over submissions, faults, releases, saves, damaged saves, other runs, copies,
// deletions and restarts of the coordinator: whatever happened, the history of the run and its
// gauges are what its ranks have trained and saved.
#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/registry.h"
#include "daemon/meters/coordinator_meter.h"
#include "daemon/telemetry/history.h"
#include "tests/common/metrics/exposition.h"
#include "tests/daemon/core/memory_store.h"
#include "tests/daemon/core/run_rig.h"
#include "tests/sanitized.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;

constexpr char kName[] = "tiny";

// What is true of the newest run in the checkpoint directory.
struct TrueRun {
  struct Step {
    int attempt;
    std::string job;
  };
  std::string id;
  std::string parent;             // of a copy: the run whose saves it goes on from
  std::map<int64_t, Step> steps;  // each that counts, and who trained it
  std::vector<int64_t> saves;  // that are intact, oldest first; of a copy with what it began from
  int64_t saved = 0;           // the newest of these
  int64_t trained = 0;
  int attempts = 0;
};

class RunModel : public RunRig<CoreTest> {
 protected:
  void SetUp() override {
    // A history writes through to its disk at each commit: thousands of them want one in memory.
    const std::string parent = fs::exists("/dev/shm") ? "/dev/shm/" : ::testing::TempDir();
    folder_ = parent + "mt-run-model-" + base::RandomHex(6);
  }
  void TearDown() override {
    meter_.reset();
    core_.reset();
    history_.reset();
    fs::remove_all(folder_);
  }

  void BeginWalk(unsigned seed) {
    meter_.reset();
    core_.reset();
    history_.reset();
    fs::remove_all(folder_);
    store_in_memory_ = MemoryStore();
    random_.seed(seed);
    run_ = TrueRun();
    job_.clear();
    is_live_ = false;
    ended_.clear();
    deleted_.clear();
    trained_.clear();
    Start();
    worker_ = NewWorker("n1", 1);
  }
  void Start() {
    meter_.reset();
    core_.reset();
    history_ = std::make_unique<History>(folder_);
    core_ = std::make_unique<Core>(&store_in_memory_, &clock_, history_.get());
    ASSERT_TRUE(core_->Recover().ok());
    registry_ = std::make_unique<metrics::Registry>();
    meter_ =
        std::make_unique<CoordinatorMeter>(CoordinatorMeter::Config{.registry = registry_.get(),
                                                                    .clock = &clock_,
                                                                    .history = history_.get(),
                                                                    .state_dir = folder_,
                                                                    .version = "1.2.3"});
    Settle();
  }
  size_t Pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  void Step() {
    if (is_live_) return StepOfLiveJob();
    const size_t dice = Pick(10);
    if (dice < 6) {
      job_ = Submit(TinyJob(kName, 1)).uid();
      Place();
    } else if (dice < 7) {
      ended_.push_back(FailAtOnce(kName).uid());
    } else if (dice < 9) {
      DeleteOne();
    } else {
      Pass(std::chrono::milliseconds(300));
      Start();
      Connect(&worker_, 1);
    }
  }
  void StepOfLiveJob() {
    const v1::Job job = Get(job_);
    const size_t dice = Pick(10);
    if (dice < 5) {
      const int64_t from = run_.trained + 1;
      run_.trained += 1 + static_cast<int64_t>(Pick(6));
      Train(worker_, job, from, run_.trained);
      for (int64_t step = from; step <= run_.trained; ++step)
        run_.steps[step] = {run_.attempts, job_};
    } else if (dice < 7) {
      if (run_.trained == run_.saved) return;
      Save(worker_, job, run_.trained);
      NoteSave(run_.trained);
    } else if (dice < 8 && run_.trained > run_.saved) {
      Release(worker_, job, run_.trained);
      NoteSave(run_.trained);
      ASSERT_TRUE(Resume(job_).ok());
      Place();
    } else if (dice < 9) {
      Fail(worker_, job);
      EndJob();
    } else {
      Finish(worker_, job, run_.trained);
      EndJob();
    }
  }
  void NoteSave(int64_t step) {
    run_.saved = step;
    run_.saves.push_back(step);
  }
  void EndJob() {
    is_live_ = false;
    ended_.push_back(job_);
  }
  // Another run, at step 0 or as a copy of what this one has saved.
  void BeginRun() {
    TrueRun next;
    next.id = base::NewUid();
    if (run_.saved > 0 && Pick(2) == 0) {
      next.parent = run_.id;
      next.saved = run_.saved;
      next.saves = {run_.saved};
      ++num_copies_;
    }
    run_ = next;
  }
  // The newest save is damaged: the run goes on from the one before.
  void DamageNewest() {
    if (run_.saves.size() < 2) return;
    run_.saves.pop_back();
    run_.saved = run_.saves.back();
    ++num_damaged_;
  }
  // The ranks of the job find the newest run in the directory, or begin one.
  void Place() {
    if (run_.id.empty() || Pick(6) == 0) {
      BeginRun();
    } else if (Pick(6) == 0) {
      DamageNewest();
    }
    ++run_.attempts;
    trained_[job_].insert(run_.id);
    run_.trained = run_.saved;
    run_.steps.erase(run_.steps.upper_bound(run_.saved), run_.steps.end());
    // After a restart of the coordinator the nodes are awaited.
    for (int i = 0; i < 60 && Get(job_).state() != v1::ADMITTED; ++i)
      PassBeating(std::chrono::seconds(2), {&worker_});
    v1::Run run = RunOf(run_.id);
    if (!run_.parent.empty()) {
      run.set_parent(run_.parent);
      run.set_from_run(run_.parent);
      run.set_from_step(run_.saves.front());
    }
    Begin(worker_, job_, run, run_.saved);
    is_live_ = true;
  }
  void DeleteOne() {
    if (ended_.empty()) return;
    const size_t at = Pick(ended_.size());
    const std::string uid = ended_[at];
    ended_.erase(ended_.begin() + static_cast<std::ptrdiff_t>(at));
    ASSERT_TRUE(Delete(uid).ok());
    deleted_.insert(uid);
    std::set<std::string> living;  // runs of jobs that are there
    for (const auto& [job, runs] : trained_) {
      if (!deleted_.contains(job)) living.insert(runs.begin(), runs.end());
    }
    // The run's checkpoints stay: it goes on when the job is submitted again.
    std::erase_if(run_.steps, [&](const auto& step) {
      const std::string& job = step.second.job;
      return deleted_.contains(job) && std::ranges::none_of(trained_[job], [&](const auto& run) {
               return living.contains(run);
             });
    });
  }

  void Check() {
    if (is_live_) CheckGauges();
    const auto newest = std::ranges::find_if(
        ended_.rbegin(), ended_.rend(), [this](const auto& uid) { return trained_.contains(uid); });
    const std::string uid = is_live_ ? job_ : newest == ended_.rend() ? "" : *newest;
    if (uid.empty() || !IsNewest(uid)) return;
    ++num_checked_;
    std::vector<std::pair<int64_t, int>> want;
    std::vector<int64_t> steps;
    want.reserve(run_.steps.size());
    steps.reserve(run_.steps.size());
    for (const auto& [step, by] : run_.steps) want.emplace_back(step, by.attempt);
    EXPECT_EQ(Walk(uid, 3 + static_cast<int>(Pick(9))), want);
    const v1::History history = HistoryOf(uid);
    for (const auto& [step, attempt] : want) steps.push_back(step);
    EXPECT_EQ(StepsOf(history), steps);
    EXPECT_EQ(history.last_step(), steps.empty() ? 0 : steps.back());
    EXPECT_EQ(Get(uid).attempt(), run_.attempts);
  }
  // Whether the job was the last to train the run: the run as of it is the whole.
  bool IsNewest(const std::string& uid) {
    return Get(uid).run().id() == run_.id && Get(uid).attempt() == run_.attempts;
  }
  void CheckGauges() {
    Settle();
    meter_->Update(*core_);
    const metrics::Exposition shown(registry_->Text());
    const auto value = [&](const std::string& name) {
      for (const char* labels : {"{mt_job=\"tiny\",mt_namespace=\"default\"}",
                                 "{mt_namespace=\"default\",mt_job=\"tiny\"}"}) {
        if (shown.Has(name + labels)) return shown.Value(name + labels);
      }
      return -1.0;
    };
    EXPECT_EQ(value("mt_checkpoint_last_success_step"), static_cast<double>(run_.saved));
    // A placement that has done no step yet shows the last one of its job.
    if (run_.trained == run_.saved) return;
    EXPECT_EQ(value("mt_job_step"), static_cast<double>(run_.trained));
  }

  std::mt19937 random_;
  MemoryStore store_in_memory_;
  std::unique_ptr<History> history_;
  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<CoordinatorMeter> meter_;
  Worker worker_;
  TrueRun run_;
  std::string job_;  // the newest that has ranks, or had
  bool is_live_ = false;
  std::vector<std::string> ended_;  // that are not deleted
  std::set<std::string> deleted_;
  std::map<std::string, std::set<std::string>> trained_;  // runs of each job
  int num_checked_ = 0;
  int num_copies_ = 0;
  int num_damaged_ = 0;
};

TEST_F(RunModel, RandomWalks) {
  for (unsigned seed = 1; seed <= (kSanitized ? 50U : 500U); ++seed) {
    SCOPED_TRACE(seed);
    BeginWalk(seed);
    for (int i = 0; i < 30 && !HasFailure(); ++i) Step();
    Check();
    if (HasFailure()) return;
  }
  if (kSanitized) return;  // a tenth of them
  EXPECT_GT(num_checked_, 300);
  EXPECT_GT(num_copies_, 100);
  EXPECT_GT(num_damaged_, 50);
}

}  // namespace
}  // namespace mt::daemon
