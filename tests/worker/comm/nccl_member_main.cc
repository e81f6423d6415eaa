// What tests of NCCL need a process of its own for, over the stand-in or whatever library is given:
//
//   mt_nccl_member load [PATH...]                loads the library and prints its path and version
//   mt_nccl_member join FOLDER INDEX SIZE        makes a group, meets the others and leaves
//   mt_nccl_member repeat FOLDER INDEX SIZE OP   prints "running" after the first round, repeats
//                                                the operation; SIGUSR1 aborts the group
//   mt_nccl_member gpu FOLDER INDEX SIZE OP      the same on the GPU of this number, over 64 MiB;
//                                                then frees what it has of the GPU
//
// Prints the status it ends with as its last line and exits with 0.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/module.h"
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

struct Operands {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;  // floats, in each
};

Status RunOnce(ProcessGroup& group, kernels::Stream& stream, const std::string& op,
               const Operands& operands) {
  const int64_t all = operands.count;
  const int64_t shard = all / group.size();
  if (op == "all_reduce") {
    return group.AllReduce(stream, operands.in, operands.out, all, DType::kF32, ReduceOp::kSum);
  }
  if (op == "reduce_scatter") {
    return group.ReduceScatter(stream, operands.in, operands.out, shard, DType::kF32,
                               ReduceOp::kSum);
  }
  if (op == "all_gather") {
    return group.AllGather(stream, operands.in, operands.out, shard, DType::kF32);
  }
  if (op == "broadcast") return group.Broadcast(stream, operands.out, all, DType::kF32, 0);
  if (op == "all_to_all") {
    return group.AllToAll(stream, operands.in, operands.out, shard, DType::kF32);
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

// `count`: floats of an operand.
Status Repeat(ProcessGroup& group, kernels::Device& device, kernels::Stream& stream,
              const std::string& op, int64_t count, const sigset_t& leave) {
  const auto bytes = count * static_cast<int64_t>(sizeof(float));
  const auto in = device.Allocate(bytes, kernels::MemoryKind::kDevice);
  const auto out = device.Allocate(bytes, kernels::MemoryKind::kDevice);
  device.Zero(stream, in->data(), bytes);
  const Leaver leaver(&group, leave);
  const Operands operands{.in = in->data(), .out = out->data(), .count = count};
  for (bool first = true;; first = false) {
    RETURN_IF_ERROR(RunOnce(group, stream, op, operands));
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
  QueueDevice queues;
  std::unique_ptr<kernels::Backend> gpu;
  if (what == "gpu") {
    ASSIGN_OR_RETURN(gpu, kernels::cuda::LoadCudaBackend({.device = std::stoi(arguments[1])}));
  }
  kernels::Device& device = gpu == nullptr ? queues : gpu->device();
  const auto stream = device.CreateStream(kernels::StreamPriority::kHigh);
  const auto factory = MakeNcclFactory(&store, {}, library, &device);
  std::vector<int> members(static_cast<size_t>(std::stoi(arguments[2])));
  std::iota(members.begin(), members.end(), 10);
  ASSIGN_OR_RETURN(const auto group, factory->Create({.name = "members",
                                                      .members = members,
                                                      .my_index = std::stoi(arguments[1])}));
  if (what == "join") return group->Barrier(*stream);
  const int64_t count = gpu == nullptr ? 60'000 : 16 << 20;
  return Repeat(*group, device, *stream, arguments[3], count, leave);
}

}  // namespace
}  // namespace mt::comm

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const mt::Status status = mt::comm::Main({argv + 1, argv + argc});
  mt::comm::Print(std::string(status.ToString()));
  return 0;
}
