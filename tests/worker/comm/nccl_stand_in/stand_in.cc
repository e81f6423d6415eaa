// A stand-in for NCCL where there is no GPU: its C interface, as far as worker/comm/nccl declares
// it, between processes of one host or threads of one, over shared memory. Streams are queues
// (queue.h). What of NCCL 2.28 it keeps, so that tests meet it: README.md.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "tests/worker/comm/nccl_stand_in/communicator.h"
#include "tests/worker/comm/nccl_stand_in/fused.h"
#include "worker/comm/nccl/nccl_api.h"

namespace mt::comm::stand_in {
namespace {

// All communicators that live: a handle that is used once it was freed ends the program, where NCCL
// would read freed memory.
class Registry {
 public:
  static Registry& Get() {
    static auto* const registry = new Registry;  // lives on for threads that outlive main
    return *registry;
  }
  NcclComm Add(std::unique_ptr<Communicator> comm) {
    const std::lock_guard lock(mu_);
    NcclComm const handle = comm.get();
    all_[handle] = {.comm = std::move(comm)};
    return handle;
  }
  Communicator* Find(NcclComm handle, const char* caller) {
    const std::lock_guard lock(mu_);
    return Entry(handle, caller).comm.get();
  }
  // May be called once per handle.
  Communicator* BeginEnd(NcclComm handle, const char* caller) {
    const std::lock_guard lock(mu_);
    Ended& entry = Entry(handle, caller);
    if (entry.ends) Die(caller, "of a communicator that is being freed");
    entry.ends = true;
    return entry.comm.get();
  }
  void Free(NcclComm handle) {
    const std::lock_guard lock(mu_);
    all_.erase(handle);
  }

 private:
  struct Ended {
    std::unique_ptr<Communicator> comm;
    bool ends = false;
  };

  [[noreturn]] static void Die(const char* caller, const char* why) {
    std::fprintf(stderr, "NCCL stand-in: %s %s\n", caller, why);
    std::abort();
  }
  Ended& Entry(NcclComm handle, const char* caller) {
    const auto at = all_.find(handle);
    if (at == all_.end()) Die(caller, "of a communicator that was freed, or never was");
    return at->second;
  }

  std::mutex mu_;
  std::map<NcclComm, Ended> all_;
};

const char* TextOf(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "no error";
    case NcclResult::kUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case NcclResult::kSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case NcclResult::kInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case NcclResult::kInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case NcclResult::kInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case NcclResult::kRemoteError:
      return "remote process exited or there was a network error";
    case NcclResult::kInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

bool IsValid(const NcclConfig* config) {
  if (config == nullptr) return true;
  if (config->magic != 0xcafebeef || config->size < sizeof(NcclConfig)) return false;
  const auto given = [](int value) { return value != NcclConfig::kUndefined; };
  if (given(config->blocking) && config->blocking != 1) return false;  // not stood in for
  if (given(config->min_ctas) && config->min_ctas <= 0) return false;
  if (given(config->max_ctas) && config->max_ctas <= 0) return false;
  return !given(config->min_ctas) || !given(config->max_ctas) ||
         config->min_ctas <= config->max_ctas;
}

void Log(const std::string& file, int num_ranks, int rank, const NcclConfig* config) {
  if (file.empty() || config == nullptr) return;
  const std::string line = "rank " + std::to_string(rank) + " of " + std::to_string(num_ranks) +
                           ", ctas " + std::to_string(config->min_ctas) + " " +
                           std::to_string(config->max_ctas) + "\n";
  std::ofstream(file, std::ios::app).write(line.data(), static_cast<std::streamsize>(line.size()));
}

NcclResult Reduction(Operation operation, Collective call, NcclType type, NcclComm comm,
                     NcclStream stream, const char* caller) {
  Communicator* const found = Registry::Get().Find(comm, caller);
  call.header.operation = static_cast<uint64_t>(operation);
  call.header.type = static_cast<uint64_t>(type);
  const bool valid = stream != nullptr && SizeOf(type) > 0 &&
                     call.header.root < static_cast<uint64_t>(found->num_ranks()) &&
                     (call.header.count == 0 || (call.in != nullptr && call.out != nullptr));
  if (!valid) return Fused::OfThread().Refuse(NcclResult::kInvalidArgument);
  return Fused::OfThread().Add(found, static_cast<const Queue*>(stream), call);
}

NcclResult Letter(Message message, size_t count, NcclType type, NcclComm comm, NcclStream stream,
                  const char* caller) {
  Communicator* const found = Registry::Get().Find(comm, caller);
  message.bytes = count * SizeOf(type);
  const bool valid = stream != nullptr && SizeOf(type) > 0 && message.peer >= 0 &&
                     message.peer < found->num_ranks() && (count == 0 || message.data != nullptr);
  if (!valid) return Fused::OfThread().Refuse(NcclResult::kInvalidArgument);
  return Fused::OfThread().Add(found, static_cast<const Queue*>(stream), message);
}

uint64_t Number(auto value) { return static_cast<uint64_t>(value); }

}  // namespace
}  // namespace mt::comm::stand_in

// NOLINTBEGIN(readability-identifier-naming,readability-function-size): names and parameters are
// NCCL's
#define MT_EXPORT extern "C" __attribute__((visibility("default")))

using namespace mt::comm;            // NOLINT(google-build-using-namespace): C functions have none
using namespace mt::comm::stand_in;  // NOLINT(google-build-using-namespace)

MT_EXPORT NcclResult ncclGetVersion(int* version) {
  *version = ReadKnobs(-1).version;
  return NcclResult::kSuccess;
}

MT_EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) { return MakeRoom(id); }

MT_EXPORT NcclResult ncclCommInitRankConfig(NcclComm* comm, int nranks, NcclUniqueId id, int rank,
                                            NcclConfig* config) {
  if (nranks <= 0 || nranks > kMaxRanks || rank < 0 || rank >= nranks || !IsValid(config)) {
    return NcclResult::kInvalidArgument;
  }
  const Knobs knobs = ReadKnobs(rank);
  Log(knobs.log, nranks, rank, config);
  auto made = std::make_unique<Communicator>(nranks, rank, knobs);
  const NcclResult result = made->Join(id);
  if (result == NcclResult::kSuccess) *comm = Registry::Get().Add(std::move(made));
  return result;
}

MT_EXPORT NcclResult ncclCommDestroy(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  Registry::Get().BeginEnd(comm, __func__)->Drain();
  Registry::Get().Free(comm);
  return NcclResult::kSuccess;
}

MT_EXPORT NcclResult ncclCommAbort(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  Registry::Get().BeginEnd(comm, __func__)->Abort();
  Registry::Get().Free(comm);
  return NcclResult::kSuccess;
}

MT_EXPORT NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  *error = Registry::Get().Find(comm, __func__)->Error();
  return NcclResult::kSuccess;
}

MT_EXPORT const char* ncclGetErrorString(NcclResult result) { return TextOf(result); }

MT_EXPORT const char* ncclGetLastError(NcclComm /*comm*/) { return "the stand-in says no more"; }

MT_EXPORT NcclResult ncclAllReduce(const void* in, void* out, size_t count, NcclType type,
                                   NcclRedOp op, NcclComm comm, NcclStream stream) {
  return Reduction(Operation::kAllReduce,
                   {.header = {.count = count, .reduce = Number(op)}, .in = in, .out = out}, type,
                   comm, stream, __func__);
}

MT_EXPORT NcclResult ncclReduceScatter(const void* in, void* out, size_t out_count, NcclType type,
                                       NcclRedOp op, NcclComm comm, NcclStream stream) {
  return Reduction(Operation::kReduceScatter,
                   {.header = {.count = out_count, .reduce = Number(op)}, .in = in, .out = out},
                   type, comm, stream, __func__);
}

MT_EXPORT NcclResult ncclAllGather(const void* in, void* out, size_t in_count, NcclType type,
                                   NcclComm comm, NcclStream stream) {
  return Reduction(Operation::kAllGather, {.header = {.count = in_count}, .in = in, .out = out},
                   type, comm, stream, __func__);
}

MT_EXPORT NcclResult ncclBroadcast(const void* in, void* out, size_t count, NcclType type, int root,
                                   NcclComm comm, NcclStream stream) {
  return Reduction(Operation::kBroadcast,
                   {.header = {.count = count, .root = Number(root)}, .in = in, .out = out}, type,
                   comm, stream, __func__);
}

MT_EXPORT NcclResult ncclSend(const void* data, size_t count, NcclType type, int peer,
                              NcclComm comm, NcclStream stream) {
  return Letter({.is_send = true, .peer = peer, .data = const_cast<void*>(data)}, count, type, comm,
                stream, __func__);
}

MT_EXPORT NcclResult ncclRecv(void* data, size_t count, NcclType type, int peer, NcclComm comm,
                              NcclStream stream) {
  return Letter({.is_send = false, .peer = peer, .data = data}, count, type, comm, stream,
                __func__);
}

MT_EXPORT NcclResult ncclGroupStart() {
  Fused::OfThread().Start();
  return NcclResult::kSuccess;
}

MT_EXPORT NcclResult ncclGroupEnd() { return Fused::OfThread().End(); }

// NOLINTEND(readability-identifier-naming,readability-function-size)

// The loader casts what it finds to these.
template <auto kFunction, auto kMember>
constexpr bool kFits =
    std::is_same_v<decltype(kFunction), std::remove_reference_t<decltype(NcclApi{}.*kMember)>>;
static_assert(kFits<&ncclGetVersion, &NcclApi::get_version>);
static_assert(kFits<&ncclGetUniqueId, &NcclApi::get_unique_id>);
static_assert(kFits<&ncclCommInitRankConfig, &NcclApi::comm_init_rank_config>);
static_assert(kFits<&ncclCommDestroy, &NcclApi::comm_destroy>);
static_assert(kFits<&ncclCommAbort, &NcclApi::comm_abort>);
static_assert(kFits<&ncclCommGetAsyncError, &NcclApi::comm_get_async_error>);
static_assert(kFits<&ncclGetErrorString, &NcclApi::get_error_string>);
static_assert(kFits<&ncclGetLastError, &NcclApi::get_last_error>);
static_assert(kFits<&ncclAllReduce, &NcclApi::all_reduce>);
static_assert(kFits<&ncclReduceScatter, &NcclApi::reduce_scatter>);
static_assert(kFits<&ncclAllGather, &NcclApi::all_gather>);
static_assert(kFits<&ncclBroadcast, &NcclApi::broadcast>);
static_assert(kFits<&ncclSend, &NcclApi::send>);
static_assert(kFits<&ncclRecv, &NcclApi::recv>);
static_assert(kFits<&ncclGroupStart, &NcclApi::group_start>);
static_assert(kFits<&ncclGroupEnd, &NcclApi::group_end>);
