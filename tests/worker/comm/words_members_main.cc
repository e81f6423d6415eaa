// Members of one group of words as the threads of a process:
//
//   mt_words_members FOLDER FIRST THREADS SIZE
//
// with the indices FIRST to FIRST + THREADS - 1 of SIZE. Once the group is made and has been called
// it prints what that took, "growth BYTES sockets NUMBER", of memory in residence and of open
// sockets, for all its members together. Then each repeats a call until it fails; its last lines
// are the members' statuses.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/worker/comm/group_harness.h"
#include "tests/worker/comm/open_sockets.h"
#include "worker/comm/file_store.h"
#include "worker/comm/gloo/gloo_factory.h"

namespace mt::comm {
namespace {

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

Status Call(ProcessGroup& group) {
  InlineStream stream;
  std::vector<double> words(8, 1.0);
  RETURN_IF_ERROR(
      group.AllReduce(stream, words.data(), words.data(), 8, kernels::DType::kF64, ReduceOp::kSum));
  if (words[7] != group.size()) return base::Internal("the sum is {}", words[7]);
  return group.Barrier(stream);
}

int Main(const std::string& folder, int first, int num_threads, int size) {
  std::vector<FileStore> stores;
  std::vector<std::unique_ptr<GroupFactory>> factories;
  stores.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    stores.emplace_back(folder);
    auto factory = MakeGlooFactory(&stores.back(), {});
    CHECK(factory.ok()) << factory.status();
    factories.push_back(std::move(*factory));
  }
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  std::latch ready(num_threads + 1);
  std::latch begin(1);
  std::latch called(num_threads);
  std::latch go_on(1);
  std::vector<Status> ends(static_cast<size_t>(num_threads));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      begin.wait();
      auto group = factories[static_cast<size_t>(i)]->Create(
          {.name = "words", .members = members, .my_index = first + i, .words = true});
      Status status = group.status();
      for (int round = 0; round < 3 && status.ok(); ++round) status = Call(**group);
      called.count_down();
      go_on.wait();
      while (status.ok()) status = Call(**group);
      ends[static_cast<size_t>(i)] = status;
    });
  }
  ready.arrive_and_wait();
  const int64_t bytes = ResidentBytes();
  const int sockets = OpenSockets();
  begin.count_down();
  called.wait();
  std::printf("growth %ld sockets %d\n", static_cast<long>(ResidentBytes() - bytes),
              OpenSockets() - sockets);
  std::fflush(stdout);
  go_on.count_down();
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : ends) std::puts(status.ToString().c_str());
  return 0;
}

}  // namespace
}  // namespace mt::comm

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  // A thousand threads would leave the tests beside this one nothing.
  static_cast<void>(::nice(10));
  return mt::comm::Main(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
}
