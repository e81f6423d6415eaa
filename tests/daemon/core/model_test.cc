// Thousands of random verbs, messages, losses and restarts, over many seeds, and what must hold at
// every moment: nothing that was acknowledged is lost or done twice, every operation ends, no slot
// is given twice, events have no gap, and every change of state is one of the table.
#include <random>

#include "tests/daemon/core/memory_store.h"
#include "tests/daemon/core/sim_cluster.h"
#include "tests/sanitized.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

constexpr int kSlots = 2;
const std::vector<std::string> kNodes = {"n1", "n2", "n3"};

bool HasStarted(v1::JobState state) { return state == v1::RUNNING || state == v1::PAUSED_HELD; }

class Model {
 public:
  // With mistakes, ledger and agents now and then lose an allocation without a word.
  explicit Model(unsigned seed, bool mistakes = false)
      : random_(seed), mistakes_(mistakes), cluster_(kNodes, kSlots) {
    cluster_.refuses_used_slots = mistakes;
    StartCore();
  }

  void Step() {
    const size_t dice = Pick(1'000);
    const std::string node = AnyNode();
    const auto runs = cluster_.Runs();
    if (dice < 40) {
      Submit();
    } else if (dice < 140) {
      Verb();
    } else if (dice < 400) {
      for (const std::string& each : kNodes) {
        for (size_t i = Pick(4); i > 0; --i) cluster_.Hear(core_.get(), each);
      }
    } else if (dice < 600) {
      cluster_.Say(core_.get(), node);
    } else if (dice < 900) {
      if (!runs.empty()) Advance(runs[Pick(runs.size())]);
    } else if (dice < 903) {
      if (!runs.empty()) cluster_.Crash(runs[Pick(runs.size())]);
    } else if (dice < 910) {
      cluster_.Disconnect(core_.get(), node);
    } else if (dice < 914) {
      cluster_.RestartAgent(core_.get(), node);
    } else if (dice < 919) {
      StartCore();
    } else if (dice < 923) {
      // Refused unless it is lost. It may live all the same: then its ranks are fenced.
      v1::DeclareDeadRequest request;
      request.set_node(node);
      v1::Node response;
      if (core_->api().nodes().DeclareDead(request, "model", &response).ok()) {
        ++deaths_;
        DeleteEnded();
      }
    } else if (dice < 936) {
      // The root goes away, for all.
      for (const v1::StoredJob* stored : core_->ledger().LiveJobs())
        cluster_.storage.lost.insert(stored->job().uid());
    } else if (dice < 937) {
      cluster_.storage.lost.clear();
    } else if (dice < 943) {
      cluster_.storage.full = Pick(2) == 0;
    } else if (dice < 970) {
      if (!cluster_.IsConnected(node)) cluster_.Connect(core_.get(), node);
    } else {
      Pass(seconds(Pick(Pick(10) == 0 ? 40 : 8)));
    }
    if (Pick(20) == 0) cluster_.FreeSlots();
    if (mistakes_ && Pick(100) == 0) MakeMistake(node);
    Settle();
    std::erase_if(allowed_,
                  [this](const std::string& uid) { return HasStarted(Job(uid).state()); });
    if (mistakes_) return;
    CheckSlots();
    CheckGoals();
    CheckReleases();
  }

  // The network heals, everyone hears everyone, and every job is ended.
  void End() {
    cluster_.storage.lost.clear();
    for (int round = 0; round < 60; ++round) {
      Heal();
      if (round != 5) continue;
      for (const std::string& uid : jobs_) {
        if (!IsFinal(Job(uid).state())) Ask(uid, 5, base::NewUid());
      }
    }
    for (const std::string& uid : jobs_) {
      const v1::Job job = Job(uid);
      EXPECT_TRUE(IsFinal(job.state())) << PositionName({job.state(), job.stopping_to()});
    }
    EXPECT_TRUE(core_->ledger().Allocations().empty());
    EXPECT_EQ(cluster_.num_held(), 0u);
    CheckOperations();
    CheckEvents();
    mismatches_ += core_->sessions().num_held_mismatches();
  }

  int num_mistakes() const { return num_mistakes_; }
  int64_t num_mismatches() const { return mismatches_; }
  int num_acknowledged() const { return static_cast<int>(operations_.size()); }
  int num_refused_verbs() const { return refused_verbs_; }
  int num_deaths() const { return deaths_; }
  int num_missed() const { return missed_; }
  int num_accepted() const { return accepted_; }
  int num_held_by_failed_saves() const { return cluster_.num_held_by_failed_saves(); }
  int num_followed_resumes() const { return followed_resumes_; }
  const std::set<v1::JobState>& seen() const { return seen_; }

 private:
  size_t Pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  std::string AnyNode() { return kNodes[Pick(kNodes.size())]; }

  void MakeMistake(const std::string& node) {
    const auto rows = core_->ledger().AllocationsOnNode(node);
    if (Pick(2) == 0) {
      num_mistakes_ += cluster_.Forget(node) ? 1 : 0;
    } else if (!rows.empty()) {
      const v1::StoredAllocation& row = *rows[Pick(rows.size())];
      core_->ledger().EraseAllocation({row.job_uid(), row.epoch(), row.node()});
      ++num_mistakes_;
    }
  }
  void StartCore() {
    if (core_ != nullptr) mismatches_ += core_->sessions().num_held_mismatches();
    for (const std::string& node : kNodes) cluster_.Disconnect(core_.get(), node);
    core_ = std::make_unique<Core>(&store_, &clock_);
    ASSERT_TRUE(core_->Recover().ok());
    Settle();
  }
  void Settle() {
    core_->Tick();
    ASSERT_TRUE(core_->Commit().ok());
    ASSERT_TRUE(core_->Commit().ok());
    EXPECT_EQ(core_->keeper().num_refused(), 0);
    if (!mistakes_) {
      EXPECT_EQ(core_->sessions().num_held_mismatches(), 0);
    }
  }
  void Pass(seconds time) {
    for (const std::string& node : kNodes) {
      if (cluster_.IsConnected(node)) cluster_.Beat(core_.get(), node);
    }
    clock_.Advance(time);
  }
  void Heal() {
    for (const std::string& node : kNodes) {
      if (!cluster_.IsConnected(node)) cluster_.Connect(core_.get(), node);
      Settle();
      while (cluster_.Hear(core_.get(), node)) {
      }
      cluster_.Say(core_.get(), node);
      Settle();
    }
    for (const SimKey& key : cluster_.Runs()) {
      if (cluster_.Find(key) != nullptr) Advance(key);
    }
    cluster_.FreeSlots();
    Pass(seconds(2));
    Settle();
  }

  // A run goes a step further. One that begins does so where the job is known to have saved, or
  // where a user allowed less, until a start is heard to have come to its end.
  void Advance(const SimKey& key) {
    const SimRun* run = cluster_.Find(key);
    const v1::StoredJob* stored = core_->ledger().FindJob(key.first);
    const bool begins = run->state == v1::SPAWNED && stored != nullptr &&
                        stored->job().epoch() == key.second &&
                        static_cast<int>(run->nodes.size()) >= run->world_size;
    int64_t known = 0;
    if (begins) {
      known =
          stored->has_base_step() ? stored->base_step() : stored->job().last_checkpoint().step();
    }
    cluster_.Advance(key);
    if (!begins) return;
    run = cluster_.Find(key);
    const bool allowed = allowed_.contains(key.first);
    missed_ += run == nullptr ? 1 : 0;
    if (run == nullptr || run->start >= known) return;
    EXPECT_TRUE(allowed) << Job(key.first).name() << " started from step " << run->start << ", "
                         << known << " was known" << (run->fresh ? ", fresh" : "");
    ++accepted_;
  }

  void Submit() {
    if (core_->ledger().LiveJobs().size() >= 6) return;
    v1::SubmitRequest request;
    const std::string name = fmt::format("job{}", num_jobs_++);
    *request.mutable_spec() = TinyJob(name, 1 + static_cast<int>(Pick(3)));
    request.mutable_spec()->set_priority(static_cast<int64_t>(Pick(3)));
    request.mutable_spec()->mutable_placement()->set_exclusive(Pick(8) == 0);
    request.set_request_id(name);
    v1::SubmitResponse response;
    ASSERT_TRUE(core_->api().jobs().Submit(request, "model", &response).ok());
    Settle();
    jobs_.push_back(response.job().uid());
  }

  v1::Job Job(const std::string& uid) {
    v1::GetJobRequest request;
    request.mutable_job()->set_uid(uid);
    v1::Job job;
    EXPECT_TRUE(core_->api().jobs().Get(request, &job).ok());
    seen_.insert(job.state());
    return job;
  }

  // Forgets jobs that have ended; what is left of their ranks may come back.
  void DeleteEnded() {
    Settle();
    std::erase_if(jobs_, [this](const std::string& uid) {
      if (!IsFinal(Job(uid).state())) return false;
      v1::DeleteJobRequest request;
      request.mutable_job()->set_uid(uid);
      request.set_request_id(base::NewUid());
      v1::Operation operation;
      EXPECT_TRUE(core_->api().verbs().Delete(request, "model", &operation).ok());
      std::erase_if(operations_, [&](const auto& asked) { return asked.second.uid == uid; });
      allowed_.erase(uid);
      return true;
    });
  }

  void Verb() {
    if (jobs_.empty()) return;
    // Mostly of those that live.
    const auto live = core_->ledger().LiveJobs();
    const std::string uid = live.empty() || Pick(10) == 0 ? jobs_[Pick(jobs_.size())]
                                                          : live[Pick(live.size())]->job().uid();
    // Kills and cancels are rarer, else few jobs live long.
    const size_t verb =
        std::array<size_t, 19>{0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8}[Pick(19)];
    behind_release_ = Job(uid).state() == v1::RELEASING && verb == 2;
    Ask(uid, verb, base::NewUid());
    // Sometimes a client that did not hear the answer asks again.
    if (!operations_.empty() && Pick(4) == 0) Repeat();
  }
  void Ask(const std::string& uid, size_t verb, const std::string& id) {
    v1::Operation operation;
    const Status status = Call(uid, verb, id, &operation);
    Settle();
    if (status.ok()) {
      if (verb == kResumeFresh || verb == kResumeOlder) allowed_.insert(uid);
      followed_resumes_ += std::exchange(behind_release_, false) ? 1 : 0;
      operations_[id] = {uid, verb, operation.name()};
      return;
    }
    ++refused_verbs_;
    EXPECT_TRUE(rpc::ReasonOf(status) == "WRONG_STATE") << status;
    EXPECT_NE(base::Message(status).find("possible:"), std::string::npos);
  }
  void Repeat() {
    auto it = operations_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(Pick(operations_.size())));
    v1::Operation operation;
    ASSERT_TRUE(Call(it->second.uid, it->second.verb, it->first, &operation).ok());
    Settle();
    EXPECT_EQ(operation.name(), it->second.name);
  }
  template <class Request>
  Status Send(Status (VerbsApi::*verb)(const Request&, std::string_view, v1::Operation*),
              Request request, const std::string& uid, const std::string& id,
              v1::Operation* operation) {
    request.mutable_job()->set_uid(uid);
    request.set_request_id(id);
    return (core_->api().verbs().*verb)(request, "model", operation);
  }
  Status Call(const std::string& uid, size_t verb, const std::string& id,
              v1::Operation* operation) {
    v1::PauseRequest pause;
    v1::CancelRequest cancel;
    v1::ResumeRequest resume;
    switch (verb) {
      case 0:
        return Send(&VerbsApi::Pause, pause, uid, id, operation);
      case 1:
        pause.set_mode(v1::PauseRequest::RELEASE);
        return Send(&VerbsApi::Pause, pause, uid, id, operation);
      case 2:
      case kResumeFresh:
      case kResumeOlder:
        resume.set_fresh(verb == kResumeFresh);
        resume.set_allow_older(verb == kResumeOlder);
        return Send(&VerbsApi::Resume, resume, uid, id, operation);
      case 3:
        return Send(&VerbsApi::TriggerCheckpoint, v1::TriggerCheckpointRequest(), uid, id,
                    operation);
      case 4:
        cancel.set_checkpoint_first(true);
        return Send(&VerbsApi::Cancel, cancel, uid, id, operation);
      case kReleaseDiscard:
        pause.set_mode(v1::PauseRequest::RELEASE);
        pause.set_discard(true);
        return Send(&VerbsApi::Pause, pause, uid, id, operation);
      default:
        return Send(&VerbsApi::Kill, v1::KillRequest(), uid, id, operation);
    }
  }

  void CheckSlots() {
    std::set<std::pair<std::string, int>> taken;
    for (const v1::StoredAllocation* allocation : core_->ledger().Allocations()) {
      for (const int slot : allocation->slots()) {
        EXPECT_TRUE(taken.insert({allocation->node(), slot}).second)
            << allocation->node() << " slot " << slot << " is given twice";
      }
    }
    EXPECT_EQ(cluster_.num_double_booked(), 0);
    EXPECT_EQ(cluster_.num_fresh_without_token(), 0);
  }
  // Nothing stands still that is to run: a resume that was queued behind a pause took effect.
  void CheckGoals() {
    for (const v1::StoredJob* stored : core_->ledger().LiveJobs()) {
      const v1::Job& job = stored->job();
      const bool stands = job.state() == v1::PAUSED_HELD || job.state() == v1::PAUSED_RELEASED;
      EXPECT_FALSE(stands && job.goal() == v1::GOAL_RUN) << job.message();
      EXPECT_FALSE(job.state() == v1::RUNNING && job.goal() != v1::GOAL_RUN) << job.message();
      // One that is said to be held is: its ranks wait, wherever they are.
      const SimRun* run = cluster_.Find({job.uid(), job.epoch()});
      if (job.state() != v1::PAUSED_HELD || run == nullptr) continue;
      EXPECT_TRUE(run->state == v1::HELD || (run->state == v1::READY && run->hold))
          << v1::RankState_Name(run->state);
    }
  }
  // What a release that succeeded says to be saved is all that was trained.
  void CheckReleases() {
    for (const auto& [id, asked] : operations_) {
      if (asked.verb != 1 || checked_.contains(asked.name)) continue;
      v1::GetOperationRequest request;
      request.set_name(asked.name);
      v1::Operation operation;
      ASSERT_TRUE(core_->api().operations().Get(request, &operation).ok());
      if (!operation.done()) continue;
      checked_.insert(asked.name);
      if (operation.has_error()) continue;
      const v1::Job job = Job(asked.uid);
      if (operation.word_step() == 0 && operation.step() == 0) continue;  // no rank was asked
      EXPECT_EQ(operation.checkpoint().step(), operation.step()) << operation.ShortDebugString();
    }
  }
  void CheckOperations() {
    std::map<std::string, int> started;
    std::map<std::string, int> ended;
    for (const v1::Event& event : Events()) {
      started[event.operation()] += event.type() == "OperationStarted" ? 1 : 0;
      ended[event.operation()] +=
          event.type() == "OperationDone" || event.type() == "OperationFailed" ? 1 : 0;
    }
    for (const auto& [id, asked] : operations_) {
      v1::GetOperationRequest request;
      request.set_name(asked.name);
      v1::Operation operation;
      ASSERT_TRUE(core_->api().operations().Get(request, &operation).ok()) << "lost";
      EXPECT_TRUE(operation.done()) << operation.ShortDebugString();
      EXPECT_EQ(operation.has_error(), !operation.error().message().empty());
      EXPECT_EQ(started[asked.name], 1);
      EXPECT_EQ(ended[asked.name], 1);
    }
  }
  void CheckEvents() {
    int64_t seq = 0;
    std::map<std::string, v1::JobState> last;
    for (const v1::Event& event : Events()) {
      EXPECT_EQ(event.seq(), ++seq);
      if (event.type() == "Submitted") last[event.job_uid()] = v1::QUEUED;
      if (event.type() != "StateChanged") continue;
      EXPECT_EQ(event.from(), last[event.job_uid()]);
      last[event.job_uid()] = event.to();
      EXPECT_TRUE(std::ranges::any_of(JobTable(), [&event](const JobTransition& row) {
        return row.from.state == event.from() && row.to.state == event.to();
      }));
    }
    for (const std::string& uid : jobs_) EXPECT_EQ(last[uid], Job(uid).state());
  }
  std::vector<v1::Event> Events() {
    v1::WatchEventsRequest request;
    request.set_since_seq(1);
    request.set_limit(100'000);
    std::vector<v1::Event> events;
    const auto followed = core_->api().streams().WatchEvents(request);
    EXPECT_TRUE(followed.ok()) << followed.status();
    for (auto taken = followed->subscription->Take(nullptr); taken.item.has_value();
         taken = followed->subscription->Take(nullptr)) {
      if (taken.item->event != nullptr) events.push_back(*taken.item->event);
    }
    return events;
  }

  static constexpr size_t kResumeFresh = 6;
  static constexpr size_t kResumeOlder = 7;
  static constexpr size_t kReleaseDiscard = 8;
  struct Asked {
    std::string uid;
    size_t verb;
    std::string name;
  };
  std::mt19937 random_;
  bool mistakes_;
  base::ManualClock clock_;
  MemoryStore store_;
  SimCluster cluster_;
  std::unique_ptr<Core> core_;
  std::vector<std::string> jobs_;
  int num_jobs_ = 0;                         // deleted ones too
  std::map<std::string, Asked> operations_;  // by request id
  std::set<v1::JobState> seen_;
  std::set<std::string> checked_;  // releases that have ended
  bool behind_release_ = false;  // the verb that is asked next: a resume of a job that is RELEASING
  int refused_verbs_ = 0;
  int deaths_ = 0;
  std::set<std::string> allowed_;  // jobs whose next start may find less than is known
  int missed_ = 0;                 // starts that did not find what they must
  int accepted_ = 0;               // starts from less, as a user allowed
  int num_mistakes_ = 0;
  int64_t mismatches_ = 0;
  int followed_resumes_ = 0;
};

TEST(CoordinatorModel, RandomHistories) {
  std::set<v1::JobState> seen;
  int acknowledged = 0;
  int refused = 0;
  int deaths = 0;
  int missed = 0;
  int accepted = 0;
  int held_by_failed_saves = 0;
  int followed_resumes = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 3 : 24); ++seed) {
    SCOPED_TRACE(seed);
    Model model(seed);
    for (int i = 0; i < 3'000 && !::testing::Test::HasFailure(); ++i) model.Step();
    model.End();
    if (::testing::Test::HasFailure()) return;
    acknowledged += model.num_acknowledged();
    refused += model.num_refused_verbs();
    deaths += model.num_deaths();
    missed += model.num_missed();
    accepted += model.num_accepted();
    held_by_failed_saves += model.num_held_by_failed_saves();
    followed_resumes += model.num_followed_resumes();
    seen.insert(model.seen().begin(), model.seen().end());
  }
  if (kSanitized) return;  // an eighth of them, fifty times slower
  // The histories were worth the name: every state that exists now was met, by many operations.
  for (const auto state : {v1::QUEUED, v1::ADMITTED, v1::STARTING, v1::RUNNING, v1::PAUSING,
                           v1::PAUSED_HELD, v1::RELEASING, v1::PAUSED_RELEASED, v1::STOPPING,
                           v1::SUCCEEDED, v1::FAILED, v1::CANCELLED}) {
    EXPECT_TRUE(seen.contains(state)) << v1::JobState_Name(state);
  }
  EXPECT_GT(acknowledged, 1'000);
  EXPECT_GT(refused, 500);
  EXPECT_GT(deaths, 0);
  EXPECT_GT(missed, 10);
  EXPECT_GT(accepted, 2);
  EXPECT_GT(held_by_failed_saves, 20);
  EXPECT_GT(followed_resumes, 20);
}

// Whatever ledger and agents lose of each other's knowledge is found and mended: every job comes to
// its end, no slot stays used, no rank is left behind.
TEST(CoordinatorModel, LostAllocationsAreFoundAndMended) {
  int mistakes = 0;
  int64_t mismatches = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 3 : 12); ++seed) {
    SCOPED_TRACE(seed);
    Model model(seed, /*mistakes=*/true);
    for (int i = 0; i < 3'000 && !::testing::Test::HasFailure(); ++i) model.Step();
    model.End();
    if (::testing::Test::HasFailure()) return;
    mistakes += model.num_mistakes();
    mismatches += model.num_mismatches();
  }
  if (kSanitized) return;  // a quarter of them
  EXPECT_GT(mistakes, 100);
  EXPECT_GT(mismatches, 20) << "the others ended before a heartbeat could show them";
}

}  // namespace
}  // namespace mt::daemon
