// The part of NCCL's C interface that is used here, declared by ourselves: the library is found at
// run time (nccl_library.h), so that no program needs it to start. Names, values and layouts are
// those of nccl.h, 2.27 and later; tests/worker/comm compares them where that header is installed.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>

namespace mt::comm {

using NcclComm = void*;    // ncclComm_t
using NcclStream = void*;  // cudaStream_t

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclType : int {
  kI8 = 0,
  kU8 = 1,
  kI32 = 2,
  kU32 = 3,
  kI64 = 4,
  kU64 = 5,
  kF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBf16 = 9,
};

enum class NcclRedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// ncclUniqueId. Passed by value.
struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

// ncclConfig_t as of 2.27. A later library reads `size` bytes of it and takes its own defaults for
// the rest. Integers that nobody set are kUndefined, pointers null.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22700;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
};

// The functions. All may be called by any thread; of one communicator only Abort and GetAsyncError
// beside another call.
struct NcclApi {
  NcclResult (*get_version)(int* version) = nullptr;
  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclComm* comm, int nranks, NcclUniqueId id, int rank,
                                      NcclConfig* config) = nullptr;
  NcclResult (*comm_destroy)(NcclComm comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm comm) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm comm) = nullptr;
  NcclResult (*all_reduce)(const void* in, void* out, size_t count, NcclType type, NcclRedOp op,
                           NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* in, void* out, size_t out_count, NcclType type,
                               NcclRedOp op, NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*all_gather)(const void* in, void* out, size_t in_count, NcclType type, NcclComm comm,
                           NcclStream stream) = nullptr;
  NcclResult (*broadcast)(const void* in, void* out, size_t count, NcclType type, int root,
                          NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*send)(const void* data, size_t count, NcclType type, int peer, NcclComm comm,
                     NcclStream stream) = nullptr;
  NcclResult (*recv)(void* data, size_t count, NcclType type, int peer, NcclComm comm,
                     NcclStream stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
};

}  // namespace mt::comm
