// A core with a history, on the played workers of core_fixture.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/telemetry/history.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

class HistoryCoreTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    Restart();
  }
  void TearDown() override {
    core_.reset();
    history_.reset();
    CoreTest::TearDown();
  }
  // As after SIGKILL.
  void Restart() {
    core_.reset();
    history_ = std::make_unique<History>(folder_ + "/history");
    core_ = std::make_unique<Core>(store_.get(), &clock_, history_.get());
    ASSERT_TRUE(core_->Recover().ok());
    Settle();
  }
  // Time for a flush.
  void Flush() { Pass(std::chrono::milliseconds(300)); }
  // What a new reader gets at once.
  std::vector<int64_t> Stream(const std::string& uid, int64_t since_step) {
    v1::StreamMetricsRequest request;
    request.mutable_job()->set_uid(uid);
    request.set_since_step(since_step);
    const auto followed = core_->api().streams().WatchMetrics(request);
    EXPECT_TRUE(followed.ok());
    std::vector<int64_t> out;
    for (;;) {
      const auto taken = followed->subscription->Take(nullptr);
      if (!taken.item.has_value()) break;
      // An evaluation shows as its step, negative.
      out.push_back(taken.item->step != nullptr ? taken.item->step->step()
                                                : -taken.item->eval->step());
      EXPECT_EQ(taken.dropped, 0);
    }
    core_->feeds().UnwatchMetrics(uid, followed->subscription.get());
    return out;
  }
  static std::vector<int64_t> Range(int64_t first, int64_t last) {
    std::vector<int64_t> out;
    for (int64_t step = first; step <= last; ++step) out.push_back(step);
    return out;
  }
  HistoryTable Kept(const std::string& uid) {
    return history_->Steps(uid, 0, 1LL << 40, 1 << 20).rows;
  }

  std::unique_ptr<History> history_;
};

}  // namespace mt::daemon
