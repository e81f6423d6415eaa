// A group member as a process: mt_comm_member FOLDER INDEX SIZE OP gloo|shm. Prints "running" after
// the first round, then repeats the operation until it fails, prints the status and exits with 0.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/core/device.h"
#include "worker/comm/file_store.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/shm/shm_factory.h"

namespace mt::comm {
namespace {

using kernels::DType;

class InlineStream final : public kernels::Stream {
 public:
  void Wait(kernels::Event& event) override { event.Synchronize(); }
  void Synchronize() override {}
};

Status RunOnce(ProcessGroup& group, const std::string& op, std::vector<float>& in,
               std::vector<float>& out) {
  InlineStream stream;
  const auto all = static_cast<int64_t>(in.size());
  const int64_t shard = all / group.size();
  if (op == "barrier") return group.Barrier(stream);
  if (op == "small") {
    return group.AllReduce(stream, in.data(), out.data(), 8, DType::kF64, ReduceOp::kSum);
  }
  if (op == "all_reduce") {
    return group.AllReduce(stream, in.data(), out.data(), all, DType::kF32, ReduceOp::kSum);
  }
  if (op == "all_reduce_half") {
    return group.AllReduce(stream, in.data(), out.data(), all, DType::kBf16, ReduceOp::kSum);
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
  // Messages around the ring.
  RETURN_IF_ERROR(
      group.Send(stream, in.data(), all, DType::kF32, (group.rank() + 1) % group.size(), 0));
  return group.Recv(stream, out.data(), all, DType::kF32,
                    (group.rank() + group.size() - 1) % group.size(), 0);
}

int Main(const std::string& folder, int index, int size, const std::string& op, bool shm) {
  FileStore store(folder);
  auto tcp = MakeGlooFactory(&store, {});
  CHECK(tcp.ok()) << tcp.status();
  const auto shared_memory = MakeShmFactory(&store, {}, tcp->get());
  GroupFactory& factory = shm ? *shared_memory : **tcp;
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  auto group = factory.Create({.name = "kill", .members = members, .my_index = index});
  CHECK(group.ok()) << group.status();
  std::vector<float> in(3 << 20);
  std::vector<float> out(in.size());
  Status status = RunOnce(**group, op, in, out);
  std::puts("running");
  std::fflush(stdout);
  while (status.ok()) status = RunOnce(**group, op, in, out);
  std::puts(status.ToString().c_str());
  std::fflush(stdout);  // the test waits for the error, not for the end of the process
  return 0;
}

}  // namespace
}  // namespace mt::comm

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  return mt::comm::Main(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argv[4],
                        std::string(argv[5]) == "shm");
}
