// Random histories of a store that is lost and comes back older: backups, copies that are started
// with and without a word, restarts, links that break, agents that start anew. What must hold: no
// rank that was seen at work is killed, no epoch is given twice, no job trains twice at once, and
// in the end every job that the store or a node knows has come to its end, without an orphan.
#include <random>

#include "common/control/epoch.h"
#include "daemon/api/orphans_api.h"
#include "daemon/authority/authority.h"
#include "tests/daemon/core/memory_store.h"
#include "tests/daemon/core/sim_cluster.h"
#include "tests/sanitized.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

const std::vector<std::string> kThreeNodes = {"n1", "n2", "n3"};

class RestoreModel {
 public:
  explicit RestoreModel(unsigned seed) : random_(seed), cluster_(kThreeNodes, /*slots=*/2) {
    cluster_.refuses_used_slots = true;
    StartCore();
    for (const std::string& node : kThreeNodes) cluster_.Connect(core_.get(), node);
    Settle();
    HearAll();
    backup_ = store_;  // it knows all nodes
  }

  void Step() {
    const size_t dice = Pick(1'000);
    const std::string node = kThreeNodes[Pick(kThreeNodes.size())];
    const auto runs = cluster_.Runs();
    if (dice < 40) {
      Submit();
    } else if (dice < 110) {
      // Users of a copy that no node has found out yet are taken at their word.
      if (AllHaveAnswered()) Verb();
    } else if (dice < 450) {
      HearAll();
    } else if (dice < 650) {
      cluster_.Say(core_.get(), node);
    } else if (dice < 900) {
      if (!runs.empty()) cluster_.Advance(runs[Pick(runs.size())]);
    } else if (dice < 908) {
      cluster_.Disconnect(core_.get(), node);
    } else if (dice < 912) {
      cluster_.RestartAgent(core_.get(), node);
    } else if (dice < 916) {
      StartCore();
    } else if (dice < 924) {
      if (core_->authority().GivesOrders()) backup_ = store_;
    } else if (dice < 927) {
      LoseStore();
    } else if (dice < 930) {
      if (!core_->authority().GivesOrders()) DeclareRestore();
    } else if (dice < 980) {
      if (!cluster_.IsConnected(node)) cluster_.Connect(core_.get(), node);
    } else {
      Pass(seconds(Pick(6)));
    }
    if (Pick(20) == 0) cluster_.FreeSlots();
    Settle();
  }

  // The store is declared to be the one to go on with, all nodes are heard, and all jobs run.
  void End() {
    for (int round = 0; round < 240; ++round) {
      // A copy may be found out only now.
      if (!core_->authority().GivesOrders()) DeclareRestore();
      Heal();
      if (round % 5 == 4) AdoptAll();
      if (round % 10 == 9) ResumeAll();
      if (round % 30 == 29) KillWhatIsInParts();
    }
    for (const v1::StoredJob* stored : core_->ledger().LiveJobs()) {
      ADD_FAILURE() << stored->job().name() << " " << PositionName(PositionOf(stored->job()))
                    << ": " << stored->job().message() << "; " << RunOf(stored->job());
    }
    EXPECT_TRUE(core_->ledger().Allocations().empty());
    EXPECT_EQ(cluster_.num_held(), 0u);
    EXPECT_EQ(Orphans().orphans_size(), 0);
  }

  int num_restores() const { return restores_; }
  int num_adoptions() const { return adoptions_; }
  int num_found_out() const { return found_out_; }

 private:
  size_t Pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  std::string RunOf(const v1::Job& job) {
    const SimRun* run = cluster_.Find({job.uid(), job.epoch()});
    if (run == nullptr) return "no rank runs";
    return fmt::format("{} of {} ranks, {}, step {}", run->nodes.size(), run->world_size,
                       v1::RankState_Name(run->state), run->step);
  }

  void StartCore() {
    for (const std::string& node : kThreeNodes) cluster_.Disconnect(core_.get(), node);
    answered_.clear();
    core_ = std::make_unique<Core>(&store_, &clock_);
    ASSERT_TRUE(core_->Recover().ok());
    Settle();
  }
  // The store is gone; the newest copy takes its place, most often without a word.
  void LoseStore() {
    store_ = backup_;
    StartCore();
    if (Pick(3) == 0) DeclareRestore();
  }
  void DeclareRestore() {
    v1::DeclareRestoreRequest request;
    request.set_reason("model");
    ASSERT_TRUE(core_->api().admin().DeclareRestore(request, "model").ok());
    ++restores_;
    Settle();
    backup_ = store_;
  }
  bool AllHaveAnswered() {
    for (const std::string& node : kThreeNodes) {
      if (cluster_.IsConnected(node)) answered_.insert(node);
    }
    return answered_.size() == kThreeNodes.size();
  }
  void Settle() {
    core_->Tick();
    ASSERT_TRUE(core_->Commit().ok());
    ASSERT_TRUE(core_->Commit().ok());
    EXPECT_EQ(core_->keeper().num_refused(), 0);
    const bool superseded = core_->authority().IsSuperseded();
    found_out_ += superseded && !was_superseded_ ? 1 : 0;
    was_superseded_ = superseded;
    Look();
  }
  // What the coordinator that is obeyed shows at work must not be killed from now on.
  void Look() {
    if (core_->authority().GivesOrders()) {
      for (const v1::StoredJob* stored : core_->ledger().LiveJobs()) {
        const v1::Job& job = stored->job();
        if (job.state() == v1::RUNNING || job.state() == v1::PAUSED_HELD)
          cluster_.at_work.insert({job.uid(), job.epoch()});
      }
    }
    EXPECT_EQ(cluster_.num_killed_at_work(), 0);
    EXPECT_EQ(cluster_.num_given_twice(), 0);
    std::map<std::string, int> training;
    for (const SimKey& key : cluster_.Runs()) {
      const SimRun* run = cluster_.Find(key);
      if (run->state != v1::TRAINING || !IsAtWork(run)) continue;
      EXPECT_EQ(++training[key.first], 1) << "a job trains twice";
    }
  }
  void HearAll() {
    for (const std::string& node : kThreeNodes) {
      while (cluster_.Hear(core_.get(), node)) {
      }
    }
  }
  void Pass(seconds time) {
    for (const std::string& node : kThreeNodes) {
      if (cluster_.IsConnected(node)) cluster_.Beat(core_.get(), node);
    }
    clock_.Advance(time);
  }
  void Heal() {
    for (const std::string& node : kThreeNodes) {
      if (!cluster_.IsConnected(node)) cluster_.Connect(core_.get(), node);
      Settle();
      HearAll();
      cluster_.Say(core_.get(), node);
      Settle();
    }
    for (const SimKey& key : cluster_.Runs()) {
      if (cluster_.Find(key) != nullptr) cluster_.Advance(key);
    }
    cluster_.FreeSlots();
    Pass(seconds(6));
    Settle();
  }
  v1::ListOrphansResponse Orphans() {
    v1::ListOrphansResponse orphans;
    core_->api().orphans().List(&orphans);
    return orphans;
  }
  // Jobs that only their ranks know; each agent has been asked for the assignment.
  void AdoptAll() {
    const v1::ListOrphansResponse found = Orphans();
    for (const v1::Orphan& orphan : found.orphans()) {
      v1::AdoptRequest request;
      request.set_job_uid(orphan.job_uid());
      v1::Job job;
      adoptions_ += core_->api().orphans().Adopt(request, "model", &job).ok() ? 1 : 0;
      Settle();
    }
  }
  // Ranks whose others have ended, as only the store that is lost knew.
  void KillWhatIsInParts() {
    const v1::ListOrphansResponse found = Orphans();
    for (const v1::Orphan& orphan : found.orphans()) {
      EXPECT_LT(orphan.ranks(), orphan.world_size()) << orphan.why();
      for (const std::string& node : orphan.nodes()) {
        v1::KillOrphanRequest request;
        request.set_node(node);
        request.set_job_uid(orphan.job_uid());
        v1::KillOrphanResponse response;
        EXPECT_TRUE(core_->api().orphans().Kill(request, "model", &response).ok());
        Settle();
        ++parts_;
      }
    }
  }
  void ResumeAll() {
    for (const v1::StoredJob* stored : core_->ledger().LiveJobs()) {
      if (stored->job().goal() != v1::GOAL_RUN) Ask(stored->job().uid(), 2);
    }
  }
  void Submit() {
    if (core_->ledger().LiveJobs().size() >= 4) return;
    v1::SubmitRequest request;
    const std::string name = fmt::format("job{}", num_jobs_++);
    *request.mutable_spec() = TinyJob(name, 1 + static_cast<int>(Pick(3)));
    request.set_request_id(name);
    v1::SubmitResponse response;
    const Status status = core_->api().jobs().Submit(request, "model", &response);
    EXPECT_EQ(status.ok(), core_->authority().GivesOrders()) << status;
    Settle();
  }
  void Verb() {
    const auto live = core_->ledger().LiveJobs();
    if (!live.empty()) Ask(live[Pick(live.size())]->job().uid(), Pick(4));
  }
  // Nothing that ends a job.
  void Ask(const std::string& uid, size_t verb) {
    if (verb <= 1) {
      v1::PauseRequest pause;
      pause.set_mode(verb == 0 ? v1::PauseRequest::HOLD : v1::PauseRequest::RELEASE);
      (void)Send(&VerbsApi::Pause, pause, uid);
    } else if (verb == 2) {
      (void)Send(&VerbsApi::Resume, v1::ResumeRequest(), uid);
    } else {
      (void)Send(&VerbsApi::TriggerCheckpoint, v1::TriggerCheckpointRequest(), uid);
    }
    Settle();
  }
  template <class Request>
  Status Send(Status (VerbsApi::*verb)(const Request&, std::string_view, v1::Operation*),
              Request request, const std::string& uid) {
    v1::Operation operation;
    request.mutable_job()->set_uid(uid);
    request.set_request_id(base::NewUid());
    return (core_->api().verbs().*verb)(request, "model", &operation);
  }

  std::mt19937 random_;
  base::ManualClock clock_;
  MemoryStore store_;
  MemoryStore backup_;
  SimCluster cluster_;
  std::unique_ptr<Core> core_;
  std::set<std::string> answered_;  // since the last start
  int num_jobs_ = 0;
  int restores_ = 0;
  int adoptions_ = 0;
  int parts_ = 0;
  int found_out_ = 0;  // older copies that were superseded
  bool was_superseded_ = false;
};

TEST(RestoreModel, RandomHistories) {
  int restores = 0;
  int adoptions = 0;
  int found_out = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 8 : 64); ++seed) {
    SCOPED_TRACE(seed);
    RestoreModel model(seed);
    for (int i = 0; i < 1'500 && !::testing::Test::HasFailure(); ++i) model.Step();
    if (!::testing::Test::HasFailure()) model.End();
    if (::testing::Test::HasFailure()) return;
    restores += model.num_restores();
    adoptions += model.num_adoptions();
    found_out += model.num_found_out();
  }
  if (kSanitized) return;  // an eighth of them, fifty times slower
  EXPECT_GT(restores, 20);
  EXPECT_GT(adoptions, 2);
  EXPECT_GT(found_out, 10);
}

}  // namespace
}  // namespace mt::daemon
