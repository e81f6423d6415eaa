// How long a rank waits for its peers: as long as its job says. And over what it meets them.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/comm/memory_store.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/rank/run.h"

namespace mt::rank {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

// Gives up at once and notes until when it was to wait.
class ImpatientStore final : public comm::RendezvousStore {
 public:
  Status Set(const std::string& key, std::string_view) override {
    keys.push_back(key);
    return OkStatus();
  }
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override {
    limit = deadline - base::Clock::Real()->Now();
    return absl::DeadlineExceededError(key);
  }
  std::vector<std::string> keys;  // set by the rank
  std::chrono::nanoseconds limit{0};
};

megatrain::v1::JobSpec TwoReplicas() {
  megatrain::v1::JobSpec job;
  spec::Faults faults = spec::LoadJob(R"(
name: tiny
model: {layers: 2, hidden_size: 16, heads: 2, seq_length: 16, vocab_size: 64}
data: {mock: true}
training: {train_iters: 2, micro_batch_size: 1, global_batch_size: 2}
optimizer: {lr: 1.0e-3}
parallel: {data: 2}
placement: {device: cpu, threads_per_rank: 1}
checkpoint: {directory: none}
resilience: {timeouts: {comm_init: 3h}}
)",
                                      {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  faults = spec::ResolveForSlots({}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

TEST(CommInitTest, TheJobSaysHowLongRanksWaitForEachOther) {
  megatrain::v1::JobSpec job = TwoReplicas();
  for (const hours limit : {hours(3), hours(1)}) {
    job.mutable_resilience()->mutable_timeouts()->set_comm_init(
        std::chrono::milliseconds(limit).count());
    ImpatientStore store;
    train::TrainObserver observer;
    const train::TrainResult result = rank::Run({.job = &job,
                                                 .rank = 0,
                                                 .world_size = 2,
                                                 .address = "127.0.0.1",
                                                 .store = &store,
                                                 .observer = &observer});
    EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded) << result.status;
    EXPECT_LE(store.limit, limit);
    EXPECT_GT(store.limit, limit - minutes(10));
  }
}

TEST(CommInitTest, TheJobSaysHowLongOneCallMayTake) {
  megatrain::v1::JobSpec job = TwoReplicas();
  const minutes limit(7);
  job.mutable_resilience()->mutable_timeouts()->set_collective(
      std::chrono::milliseconds(limit).count());
  comm::MemoryStore store;
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      train::TrainObserver observer;
      std::chrono::milliseconds world{0}, gradients{0};
      const train::TrainResult result = rank::Run({.job = &job,
                                                   .rank = rank,
                                                   .world_size = 2,
                                                   .address = "127.0.0.1",
                                                   .store = &store,
                                                   .observer = &observer,
                                                   .on_groups = [&](parallel::RankGroups* groups) {
                                                     if (groups == nullptr) return;
                                                     world = groups->world()->op_timeout();
                                                     gradients = groups->dp_reduce()->op_timeout();
                                                   }});
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(world, limit);
      EXPECT_EQ(gradients, limit);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(CommInitTest, RanksTryToShareMemoryUnlessToldNotTo) {
  const megatrain::v1::JobSpec job = TwoReplicas();
  for (const bool tcp_only : {false, true}) {
    ImpatientStore store;
    train::TrainObserver observer;
    const train::TrainResult result = rank::Run({.job = &job,
                                                 .rank = 0,
                                                 .world_size = 2,
                                                 .address = "127.0.0.1",
                                                 .store = &store,
                                                 .tcp_only = tcp_only,
                                                 .observer = &observer});
    EXPECT_FALSE(result.status.ok());
    EXPECT_EQ(store.keys, std::vector<std::string>{tcp_only ? "comm/world/0/0" : "shm/world/0/0"});
  }
}

}  // namespace
}  // namespace mt::rank
