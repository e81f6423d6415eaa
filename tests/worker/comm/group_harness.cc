// One factory per rank over a shared in-memory store for Gloo and shared memory, one hub for
// threads; each rank's body runs on its own thread.
#include "tests/worker/comm/group_harness.h"

#include <atomic>
#include <latch>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/memory_store.h"
#include "worker/comm/shm/shm_factory.h"
#include "worker/comm/threads/hub.h"

namespace mt::comm {

namespace {

// Members that fall back to it would be tested over something else.
class NoFactory final : public GroupFactory {
  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    return base::Internal("group {}: its members share no memory", spec.name);
  }
};

}  // namespace

std::string Name(Kind kind) {
  switch (kind) {
    case Kind::kThreads:
      return "threads";
    case Kind::kGloo:
      return "gloo";
    case Kind::kShm:
      return "shm";
  }
  return "?";
}

struct Ranks::State {
  int num_ranks = 0;
  MemoryStore store;
  NoFactory no_factory;
  std::unique_ptr<ThreadsHub> hub;
  std::vector<std::unique_ptr<GroupFactory>> factories;
};

Ranks::Ranks(Kind kind, int num_ranks, CommConfig config) : state_(std::make_unique<State>()) {
  state_->num_ranks = num_ranks;
  if (kind == Kind::kThreads) {
    state_->hub = std::make_unique<ThreadsHub>(config);
    return;
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (kind == Kind::kShm) {
      state_->factories.push_back(MakeShmFactory(&state_->store, config, &state_->no_factory));
      continue;
    }
    auto factory = MakeGlooFactory(&state_->store, config);
    CHECK(factory.ok()) << factory.status();
    state_->factories.push_back(std::move(*factory));
  }
}

Ranks::~Ranks() = default;

GroupFactory& Ranks::factory(int rank) {
  return state_->hub ? *state_->hub : *state_->factories[static_cast<size_t>(rank)];
}

void Ranks::Run(const std::string& name, const std::function<void(ProcessGroup&)>& body,
                bool words) {
  std::vector<int> members(static_cast<size_t>(state_->num_ranks));
  // World ranks unlike indices, so that a mix-up shows.
  std::iota(members.begin(), members.end(), 10);
  // Who breaks its group right after it has joined may end the joining of those that are slower.
  std::latch all_joined(state_->num_ranks);
  std::atomic<bool> all_in = true;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < state_->num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = factory(rank).Create(
          {.name = name, .members = members, .my_index = rank, .words = words});
      if (!group.ok()) all_in = false;
      all_joined.arrive_and_wait();
      ASSERT_TRUE(group.ok()) << group.status();
      if (all_in) body(**group);  // which may wait for the others
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace mt::comm
