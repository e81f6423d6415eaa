// What tests of NCCL need a process of its own for, over the stand-in or whatever library is given:
//
//   mt_nccl_member load [PATH...]                loads the library and prints its path and version
//   mt_nccl_member join FOLDER INDEX SIZE        makes a group, meets the others and leaves
//   mt_nccl_member repeat FOLDER INDEX SIZE OP   prints "running" after the first round, repeats
//                                                the operation; SIGUSR1 aborts the group
//
// Prints the status it ends with as its last line and exits with 0.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/comm/queue_device.h"
#include "worker/comm/file_store.h"
#include "worker/comm/nccl/nccl_factory.h"
#include "worker/comm/nccl/nccl_library.h"

namespace mt::comm {
namespace {

using kernels::DType;

void Print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

Status Load(const std::vector<std::string>& paths) {
  ASSIGN_OR_RETURN(const NcclLibrary* library, paths.empty() ? LoadNccl() : LoadNccl(paths));
  Print(library->path + " " + library->Version());
  return OkStatus();
}

Status RunOnce(ProcessGroup& group, kernels::Stream& stream, const std::string& op,
               std::vector<float>& in, std::vector<float>& out) {
  const auto all = static_cast<int64_t>(in.size());
  const int64_t shard = all / group.size();
  if (op == "all_reduce") {
    return group.AllReduce(stream, in.data(), out.data(), all, DType::kF32, ReduceOp::kSum);
  }
  if (op == "reduce_scatter") {
    return group.ReduceScatter(stream, in.data(), out.data(), shard, DType::kF32, ReduceOp::kSum);
  }
  if (op == "all_gather") {
    return group.AllGather(stream, in.data(), out.data(), shard, DType::kF32);
  }
  if (op == "broadcast") return group.Broadcast(stream, out.data(), all, DType::kF32, 0);
  if (op == "all_to_all") {
    return group.AllToAll(stream, in.data(), out.data(), shard, DType::kF32);
  }
  return group.Barrier(stream);
}

// Aborts a group upon SIGUSR1, as the switch of worker/rank does when others say that it is over.
class Leaver {
 public:
  Leaver(ProcessGroup* group, const sigset_t& leave)
      : thread_([group, leave] {
          int number = 0;
          sigwait(&leave, &number);
          group->Abort("this rank leaves");
        }) {}
  ~Leaver() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  Leaver(const Leaver&) = delete;
  Leaver& operator=(const Leaver&) = delete;

 private:
  std::thread thread_;
};

Status Repeat(ProcessGroup& group, kernels::Stream& stream, const std::string& op,
              const sigset_t& leave) {
  const Leaver leaver(&group, leave);
  std::vector<float> in(60000);
  std::vector<float> out(in.size());
  for (bool first = true;; first = false) {
    RETURN_IF_ERROR(RunOnce(group, stream, op, in, out));
    stream.Synchronize();
    RETURN_IF_ERROR(group.status());
    if (first) Print("running");
  }
}

Status Main(std::vector<std::string> arguments) {
  const std::string what = arguments.front();
  arguments.erase(arguments.begin());
  if (what == "load") return Load(arguments);
  // Before any thread is made: all of them leave the signal to the one that waits for it.
  sigset_t leave;
  sigemptyset(&leave);
  sigaddset(&leave, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &leave, nullptr);
  ASSIGN_OR_RETURN(const NcclLibrary* library, LoadNccl());
  FileStore store(arguments[0]);
  QueueDevice device;
  const auto stream = device.CreateStream(kernels::StreamPriority::kHigh);
  const auto factory = MakeNcclFactory(&store, {}, library, &device);
  std::vector<int> members(static_cast<size_t>(std::stoi(arguments[2])));
  std::iota(members.begin(), members.end(), 10);
  ASSIGN_OR_RETURN(const auto group, factory->Create({.name = "members",
                                                      .members = members,
                                                      .my_index = std::stoi(arguments[1])}));
  if (what == "join") return group->Barrier(*stream);
  return Repeat(*group, *stream, arguments[3], leave);
}

}  // namespace
}  // namespace mt::comm

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const mt::Status status = mt::comm::Main({argv + 1, argv + argc});
  mt::comm::Print(std::string(status.ToString()));
  return 0;
}
