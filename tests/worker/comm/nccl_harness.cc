// One device and one factory per rank over a shared store in memory.
#include "tests/worker/comm/nccl_harness.h"

#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "worker/comm/call_check.h"
#include "worker/comm/memory_store.h"
#include "worker/comm/nccl/nccl_factory.h"
#include "worker/comm/threads/hub.h"

namespace mt::comm {

std::string StandInFolder() { return std::string(MT_BINARY_DIR) + "/nccl_stand_in"; }
std::string StandInPath() { return StandInFolder() + "/libnccl.so.2"; }
std::string LackingPath() { return std::string(MT_BINARY_DIR) + "/nccl_lacking/libnccl.so.2"; }

const NcclLibrary* StandIn() {
  const auto library = LoadNccl({StandInPath()});
  CHECK(library.ok()) << library.status();
  return *library;
}

// Set and unset while no rank runs.
WithKnobs::WithKnobs(const std::string& knobs) {
  setenv("MT_NCCL_STAND_IN", knobs.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}
WithKnobs::~WithKnobs() { unsetenv("MT_NCCL_STAND_IN"); }  // NOLINT(concurrency-mt-unsafe)

void RunNccl(const std::string& name, int num_ranks, const CommConfig& config,
             const std::function<void(NcclRank&)>& body, bool checked) {
  MemoryStore store;
  ThreadsHub hosts(config);
  std::vector<int> members(static_cast<size_t>(num_ranks));
  std::iota(members.begin(), members.end(), 10);
  std::vector<QueueDevice> devices(members.size());
  std::vector<std::unique_ptr<GroupFactory>> factories;
  factories.reserve(devices.size());
  for (QueueDevice& device : devices) {
    factories.push_back(MakeNcclFactory(&store, config, StandIn(), &device));
  }
  std::vector<std::unique_ptr<GroupFactory>> over;
  for (const auto& factory : factories) {
    if (checked) over.push_back(MakeCheckedFactory(factory.get(), &hosts, config));
  }
  const auto& used = checked ? over : factories;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto stream = devices[rank].CreateStream(kernels::StreamPriority::kHigh);
      auto group = used[rank]->Create(
          {.name = name, .members = members, .my_index = static_cast<int>(rank)});
      ASSERT_TRUE(group.ok()) << group.status();
      NcclRank given{.group = **group, .device = devices[rank], .stream = *stream};
      body(given);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace mt::comm
