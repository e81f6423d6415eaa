// Our declarations of NCCL's interface against its own header, where that is installed. All at
// compile time.
#include "worker/comm/nccl/nccl_api.h"

#include <cstddef>
#include <type_traits>

#include <nccl.h>

#include <gtest/gtest.h>

namespace mt::comm {
namespace {

// Whether two functions take arguments of the same sizes, one by one.
template <class Ours, class Theirs>
struct SameShape : std::false_type {};
template <class R1, class... A1, class R2, class... A2>
  requires(sizeof...(A1) == sizeof...(A2))
struct SameShape<R1 (*)(A1...), R2 (*)(A2...)>
    : std::bool_constant<(sizeof(R1) == sizeof(R2)) && ((sizeof(A1) == sizeof(A2)) && ...) &&
                         ((std::is_pointer_v<A1> == std::is_pointer_v<A2>)&&...)> {};
template <class Ours, class Theirs>
constexpr bool kSameShape = SameShape<Ours, Theirs>::value;

static_assert(kSameShape<decltype(NcclApi::get_version), decltype(&ncclGetVersion)>);
static_assert(kSameShape<decltype(NcclApi::get_unique_id), decltype(&ncclGetUniqueId)>);
static_assert(
    kSameShape<decltype(NcclApi::comm_init_rank_config), decltype(&ncclCommInitRankConfig)>);
static_assert(kSameShape<decltype(NcclApi::comm_destroy), decltype(&ncclCommDestroy)>);
static_assert(kSameShape<decltype(NcclApi::comm_abort), decltype(&ncclCommAbort)>);
static_assert(
    kSameShape<decltype(NcclApi::comm_get_async_error), decltype(&ncclCommGetAsyncError)>);
static_assert(kSameShape<decltype(NcclApi::get_error_string), decltype(&ncclGetErrorString)>);
static_assert(kSameShape<decltype(NcclApi::get_last_error), decltype(&ncclGetLastError)>);
static_assert(kSameShape<decltype(NcclApi::all_reduce), decltype(&ncclAllReduce)>);
static_assert(kSameShape<decltype(NcclApi::reduce_scatter), decltype(&ncclReduceScatter)>);
static_assert(kSameShape<decltype(NcclApi::all_gather), decltype(&ncclAllGather)>);
static_assert(kSameShape<decltype(NcclApi::broadcast), decltype(&ncclBroadcast)>);
static_assert(kSameShape<decltype(NcclApi::send), decltype(&ncclSend)>);
static_assert(kSameShape<decltype(NcclApi::recv), decltype(&ncclRecv)>);
static_assert(kSameShape<decltype(NcclApi::group_start), decltype(&ncclGroupStart)>);
static_assert(kSameShape<decltype(NcclApi::group_end), decltype(&ncclGroupEnd)>);

template <class Ours, class Theirs>
constexpr bool Same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

static_assert(Same(NcclResult::kSuccess, ncclSuccess));
static_assert(Same(NcclResult::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(Same(NcclResult::kSystemError, ncclSystemError));
static_assert(Same(NcclResult::kInternalError, ncclInternalError));
static_assert(Same(NcclResult::kInvalidArgument, ncclInvalidArgument));
static_assert(Same(NcclResult::kInvalidUsage, ncclInvalidUsage));
static_assert(Same(NcclResult::kRemoteError, ncclRemoteError));
static_assert(Same(NcclResult::kInProgress, ncclInProgress));

static_assert(Same(NcclType::kI8, ncclInt8) && Same(NcclType::kU8, ncclUint8));
static_assert(Same(NcclType::kI32, ncclInt32) && Same(NcclType::kU32, ncclUint32));
static_assert(Same(NcclType::kI64, ncclInt64) && Same(NcclType::kU64, ncclUint64));
static_assert(Same(NcclType::kF16, ncclFloat16) && Same(NcclType::kF32, ncclFloat32));
static_assert(Same(NcclType::kF64, ncclFloat64) && Same(NcclType::kBf16, ncclBfloat16));

static_assert(Same(NcclRedOp::kSum, ncclSum) && Same(NcclRedOp::kProd, ncclProd));
static_assert(Same(NcclRedOp::kMax, ncclMax) && Same(NcclRedOp::kMin, ncclMin));

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);

// A later header has more fields at the end.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(offsetof(NcclConfig, traffic_class) == offsetof(ncclConfig_t, trafficClass));
static_assert(offsetof(NcclConfig, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(NcclConfig, collnet_enable) == offsetof(ncclConfig_t, collnetEnable));
static_assert(offsetof(NcclConfig, cta_policy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(NcclConfig, shrink_share) == offsetof(ncclConfig_t, shrinkShare));
static_assert(offsetof(NcclConfig, nvls_ctas) == offsetof(ncclConfig_t, nvlsCTAs));

// At run time: what the header's initializer sets is what ours begins with.
TEST(NcclApi, BeginsAsTheHeadersInitializer) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig{}.magic, theirs.magic);
  EXPECT_EQ(NcclConfig{}.size, sizeof(NcclConfig));
  EXPECT_LE(NcclConfig{}.version, theirs.version);
}

}  // namespace
}  // namespace mt::comm
