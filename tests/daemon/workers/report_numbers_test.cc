// The numbers of reports, between a worker's outbox and a store: whatever is thinned, cut off,
// killed or restored, every number is accounted for exactly once: taken, covered by a marker, or
// recorded as lost.
#include "daemon/workers/report_numbers.h"

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"
#include "tests/sanitized.h"
#include "worker/node/outbox/outbox.h"

namespace mt::daemon {
namespace {

enum class Fate { kTaken, kThinned, kLost };

// A store: what is committed, and what became of each number of each worker process.
struct Store {
  v1::StoredWorker row;
  int process = -1;  // that the row speaks of
  std::map<std::pair<int, int64_t>, Fate> fates;
  int64_t steps_taken = 0;
  int64_t steps_dropped = 0;  // as the markers say
};

class World {
 public:
  explicit World(unsigned seed) : random_(seed) { StartAgent(); }

  void Step() {
    const int dice = Pick(1'000);
    if (dice < 500) {
      AddReport();
    } else if (dice < 700) {
      Deliver();
    } else if (dice < 800) {
      Commit();
    } else if (dice < 860) {
      Acknowledge();
    } else if (dice < 910) {
      Connect();
    } else if (dice < 950) {
      Disconnect();
    } else if (dice < 970) {
      RestartCoordinator(committed_);
    } else if (dice < 980) {
      backup_ = committed_;
    } else if (dice < 985) {
      restored_ = true;
      RestartCoordinator(backup_);
    } else if (dice < 990) {
      StartAgent();
    }
  }
  // Everything that is left arrives; then every number of the process has its fate.
  void Finish() {
    Connect();
    while (!wire_.empty()) Deliver();
    for (int64_t seq = 1; seq <= outbox_->newest_seq(); ++seq) {
      ASSERT_TRUE(memory_.fates.contains({process_, seq})) << "passed over in silence: " << seq;
    }
    EXPECT_EQ(memory_.row.acked_seq(), outbox_->newest_seq());
    if (!restored_) {
      EXPECT_EQ(num_lost_, 0);
    }
    // Each step of what was not lost was taken, or a marker counts it.
    int64_t said = 0;
    for (int64_t seq = 1; seq <= outbox_->newest_seq(); ++seq) {
      if (memory_.fates.at({process_, seq}) != Fate::kLost) said += steps_of_[seq];
    }
    EXPECT_GE(memory_.steps_taken + memory_.steps_dropped, said);
    EXPECT_LE(memory_.steps_taken, said);
  }

  int64_t num_lost() const { return num_lost_; }
  int64_t num_thinned() const { return num_thinned_; }
  int64_t num_repeated() const { return num_repeated_; }

 private:
  int Pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

  void AddReport() {
    v1::WorkerMessage message;
    const int steps = Pick(4);  // 0: a report of another kind, which is never given up
    if (steps == 0) message.mutable_job_report();
    for (int i = 0; i < steps; ++i) message.mutable_steps()->add_steps()->set_step(i);
    const v1::WorkerMessage& kept = outbox_->Add(std::move(message));
    steps_of_[kept.seq()] = steps;
    if (connected_) wire_.push_back(kept);
  }
  void Connect() {
    Disconnect();
    connected_ = true;
    v1::Register hello;
    hello.set_lowest_seq(outbox_->lowest_seq());
    hello.set_newest_seq(outbox_->newest_seq());
    if (memory_.process != process_) {
      memory_.row.Clear();
      memory_.process = process_;
      memory_.steps_taken = memory_.steps_dropped = 0;
    }
    const int64_t before = memory_.row.acked_seq();
    const int64_t lost = BeginReports(hello, &memory_.row);
    for (int64_t i = 1; i <= lost; ++i) Settle(before + i, Fate::kLost);
    num_lost_ += lost;
    outbox_->ForEach([this](const v1::WorkerMessage& report) { wire_.push_back(report); });
  }
  void Disconnect() {
    connected_ = false;
    wire_.clear();
  }
  void Deliver() {
    if (wire_.empty()) return;
    const v1::WorkerMessage message = std::move(wire_.front());
    wire_.pop_front();
    const int64_t before = memory_.row.acked_seq();
    const int64_t dropped = memory_.row.dropped_steps();
    switch (OrderOfReport(message, &memory_.row)) {
      case ReportOrder::kNext:
        for (int64_t seq = before + 1; seq < message.seq(); ++seq) Settle(seq, Fate::kThinned);
        Settle(message.seq(), Fate::kTaken);
        memory_.steps_taken += message.steps().steps_size();
        memory_.steps_dropped += memory_.row.dropped_steps() - dropped;
        return;
      case ReportOrder::kRepeated:
        ++num_repeated_;
        return;
      case ReportOrder::kRefused:
        ADD_FAILURE() << "an honest report was refused: " << message.first_seq() << ".."
                      << message.seq() << " after " << before;
    }
  }
  void Settle(int64_t seq, Fate fate) {
    EXPECT_TRUE(memory_.fates.emplace(std::pair(process_, seq), fate).second) << "twice: " << seq;
    if (fate != Fate::kThinned) return;
    ++num_thinned_;
    EXPECT_GT(steps_of_[seq], 0) << "only reports of steps are given up";
  }
  void Commit() { committed_ = memory_; }
  // The worker hears of what is on disk only.
  void Acknowledge() {
    if (connected_ && committed_.process == process_)
      outbox_->Acknowledge(committed_.row.acked_seq());
  }
  void RestartCoordinator(const Store& store) {
    Disconnect();
    committed_ = store;
    memory_ = committed_;
  }
  void StartAgent() {
    Disconnect();
    outbox_ = std::make_unique<node::Outbox>(40);
    steps_of_.clear();
    ++process_;
  }

  std::mt19937 random_;
  std::unique_ptr<node::Outbox> outbox_;
  int process_ = -1;
  bool connected_ = false;
  std::deque<v1::WorkerMessage> wire_;
  std::map<int64_t, int64_t> steps_of_;  // number -> its steps, when it was reported
  Store memory_, committed_, backup_;
  bool restored_ = false;
  int64_t num_lost_ = 0, num_thinned_ = 0, num_repeated_ = 0;
};

TEST(ReportNumbersTest, EveryNumberIsAccountedForOnce) {
  int64_t lost = 0, thinned = 0, repeated = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 30U : 300U) && !testing::Test::HasFailure();
       ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 1'500; ++i) world.Step();
    world.Finish();
    lost += world.num_lost();
    thinned += world.num_thinned();
    repeated += world.num_repeated();
  }
  if (kSanitized) return;  // a tenth of them
  // It all happened.
  EXPECT_GT(lost, 100);
  EXPECT_GT(thinned, 100);
  EXPECT_GT(repeated, 100);
}

v1::WorkerMessage Numbered(int64_t seq, int64_t first = 0) {
  v1::WorkerMessage message;
  message.set_seq(seq);
  message.set_first_seq(first);
  return message;
}

TEST(ReportNumbersTest, ANumberThatDoesNotFollowIsRefused) {
  v1::StoredWorker worker;
  worker.set_acked_seq(5);
  for (const auto& [seq, first] : std::vector<std::pair<int64_t, int64_t>>{
           {7, 0}, {int64_t{1} << 40, 0}, {9, 7}, {-1, 0}, {6, 7}, {6, -3}, {INT64_MIN, 0}}) {
    EXPECT_EQ(OrderOfReport(Numbered(seq, first), &worker), ReportOrder::kRefused)
        << seq << " from " << first;
    EXPECT_EQ(worker.acked_seq(), 5);
  }
  v1::WorkerMessage negative = Numbered(6);
  negative.set_dropped_steps(-1);
  EXPECT_EQ(OrderOfReport(negative, &worker), ReportOrder::kRefused);
  EXPECT_EQ(OrderOfReport(Numbered(5), &worker), ReportOrder::kRepeated);
  EXPECT_EQ(OrderOfReport(Numbered(9, 3), &worker), ReportOrder::kNext);
  EXPECT_EQ(worker.acked_seq(), 9);
  EXPECT_EQ(OrderOfReport(Numbered(10), &worker), ReportOrder::kNext);
}

TEST(ReportNumbersTest, AStoreThatSaysMoreThanItsWorkerIsCorrected) {
  v1::StoredWorker worker;
  worker.set_acked_seq(int64_t{1} << 40);
  v1::Register hello;
  hello.set_lowest_seq(11);
  hello.set_newest_seq(20);
  EXPECT_EQ(BeginReports(hello, &worker), 0);
  EXPECT_EQ(worker.acked_seq(), 10);
  // An agent that does not say leaves things as they are.
  worker.set_acked_seq(15);
  EXPECT_EQ(BeginReports({}, &worker), 0);
  EXPECT_EQ(worker.acked_seq(), 15);
  EXPECT_EQ(BeginReports(hello, &worker), 0);
  EXPECT_EQ(worker.acked_seq(), 15) << "taken, and not acknowledged yet";
}

}  // namespace
}  // namespace mt::daemon
