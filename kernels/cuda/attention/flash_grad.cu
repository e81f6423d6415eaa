// The gradient of the custom attention in three kernels: delta = sum of dout * o per query; dq by
// blocks of queries; dk and dv by blocks of keys, which compute the logits transposed.
// Probabilities are recomputed from the kept log-sum-exp (Dao et al. 2022, algorithm 4). Computing
// them in both kernels costs two extra products of seven and needs no atomics.
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/flash_place.cuh"

namespace mt::kernels::cuda {
namespace {

template <class S>
struct GradArgs {
  FlashShape z;
  Heads<S> q, k, v, o, dout, dq, dk, dv;
  bool aligned;
  const float* lse;  // [b, a, s]
  float* delta;      // [b, a, s]
};

constexpr int kDeltaThreads = 256;

// One warp per query and head. 256 threads.
template <class S>
__global__ void __launch_bounds__(kDeltaThreads) DeltaKernel(const GradArgs<S> a) {
  const FlashShape& z = a.z;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t index = int64_t{blockIdx.x} * (kDeltaThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= int64_t{z.b} * z.a * z.s) return;
  const int64_t head = index % z.a, b = index / z.a % z.b, row = index / z.a / z.b;
  const S* const o = a.o.Row(row, b, head);
  const S* const dout = a.dout.Row(row, b, head);
  float sum = 0;
  for (int64_t c = lane; c < z.d; c += kWarp) sum += Widen(o[c]) * Widen(dout[c]);
  sum = WarpSum(sum);
  if (lane == 0) a.delta[(b * z.a + head) * z.s + row] = sum;
}

// Returns a kept log-sum-exp in units of log 2; 0 for a query that attends to no key, whose logits
// are all -infinity.
__device__ __forceinline__ float Log2OfSum(float lse) {
  return lse == -INFINITY ? 0.0F : lse * kLog2E;
}

// Multiplies a tile by its dropout multipliers: `keep_scale` where the bit of `keep` is set, else
// 0.
template <bool kQueriesAreRows, int N, class Keep>
__device__ __forceinline__ void DropTile(const FlashShape& z, const Keep& keep, int row,
                                         float (&tile)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = row + FragmentRow(i), c = n * 8 + FragmentColumn(i);
      const bool kept = kQueriesAreRows ? keep.Keeps(r, c) : keep.Keeps(c, r);
      tile[n][i] *= kept ? z.keep_scale : 0.0F;
    }
  }
}

// dq of kRows queries of one head. Shared memory: tiles of queries, dout, keys and values
// (dynamic), and the tile's dropout bits.
template <class S, int D>
__global__ void __launch_bounds__(FlashTiles<S, D>::kThreads) QueryKernel(const GradArgs<S> a) {
  using Tiles = FlashTiles<S, D>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ KeepBits<Tiles::kRows, Tiles::kColumns> keep[Tiles::kStages];
  S* const q_tile = reinterpret_cast<S*>(shared);
  S* const dout_tile = q_tile + Tiles::kRowTile;
  S* const k_tile = dout_tile + Tiles::kRowTile;
  S* const v_tile = k_tile + Tiles::kStages * Tiles::kColumnTile;
  const FlashShape& z = a.z;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiles::kRows;
  const int head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int kv_head = head / (z.a / z.g), warp = static_cast<int>(threadIdx.x) / kWarp;
  const int query = first + warp * 16;
  const float slope = z.slopes != nullptr ? z.slopes[head] : 0.0F;
  constexpr bool kQueriesAreRows = true;
  LoadTile<D, Tiles::kRows>(a.q, z, a.aligned, first, b, head, q_tile);
  LoadTile<D, Tiles::kRows>(a.dout, z, a.aligned, first, b, head, dout_tile);
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(query + FragmentRow(2 * half), z.s - 1);
    lse[half] = Log2OfSum(a.lse[(int64_t{b} * z.a + head) * z.s + row]);
    delta[half] = a.delta[(int64_t{b} * z.a + head) * z.s + row];
  }
  float acc[D / 8][4] = {};
  const auto load = [&](int key, int stage) {
    LoadTile<D, Tiles::kColumns>(a.k, z, a.aligned, key, b, kv_head,
                                 k_tile + stage * Tiles::kColumnTile);
    LoadTile<D, Tiles::kColumns>(a.v, z, a.aligned, key, b, kv_head,
                                 v_tile + stage * Tiles::kColumnTile);
    if (z.threshold != 0) keep[stage].Fill(z, b, head, first, key);
  };
  const auto compute = [&](int key, int stage) {
    const S* const keys = k_tile + stage * Tiles::kColumnTile;
    float p[Tiles::kN][4] = {}, dp[Tiles::kN][4] = {};
    RowsByRows<D>(q_tile + warp * 16 * kPitch<S, D>, keys, p);
    PlaceTile<kQueriesAreRows>(z, query, key, slope, p);
    RowsByRows<D>(dout_tile + warp * 16 * kPitch<S, D>, v_tile + stage * Tiles::kColumnTile, dp);
    if (z.threshold != 0) DropTile<kQueriesAreRows>(z, keep[stage], warp * 16, dp);
#pragma unroll
    for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        dp[n][i] = Exp2(p[n][i] - lse[i / 2]) * (dp[n][i] - delta[i / 2]);
      }
    }
    TileByRows<D>(dp, keys, acc);
  };
  ForTiles<Tiles>(z.KeysBegin(first) / Tiles::kColumns * Tiles::kColumns,
                  z.KeysEnd(first, Tiles::kRows), load, compute);
  const float scale[2] = {z.scale, z.scale};
  StoreRows<D>(acc, scale, a.dq, z, query, b, head);
}

// dk and dv of kRows keys of one key/value head, over all query heads of its group. Shared memory:
// tiles of keys, values, queries and dout (dynamic), and the tile's log-sum-exps, deltas and
// dropout bits.
template <class S, int D>
__global__ void __launch_bounds__(FlashTiles<S, D>::kThreads) KeyKernel(const GradArgs<S> a) {
  using Tiles = FlashTiles<S, D>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ KeepBits<Tiles::kColumns, Tiles::kRows> keep[Tiles::kStages];
  __shared__ float lse[Tiles::kStages][Tiles::kColumns], delta[Tiles::kStages][Tiles::kColumns];
  S* const k_tile = reinterpret_cast<S*>(shared);
  S* const v_tile = k_tile + Tiles::kRowTile;
  S* const q_tile = v_tile + Tiles::kRowTile;
  S* const dout_tile = q_tile + Tiles::kStages * Tiles::kColumnTile;
  const FlashShape& z = a.z;
  const int first = static_cast<int>(blockIdx.x) * Tiles::kRows;
  const int kv_head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int per_group = z.a / z.g, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int key = first + warp * 16;
  constexpr bool kQueriesAreRows = false;
  LoadTile<D, Tiles::kRows>(a.k, z, a.aligned, first, b, kv_head, k_tile);
  LoadTile<D, Tiles::kRows>(a.v, z, a.aligned, first, b, kv_head, v_tile);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int head = kv_head * per_group; head < (kv_head + 1) * per_group; ++head) {
    const float slope = z.slopes != nullptr ? z.slopes[head] : 0.0F;
    const int64_t rows = (int64_t{b} * z.a + head) * z.s;
    const auto load = [&](int query, int stage) {
      LoadTile<D, Tiles::kColumns>(a.q, z, a.aligned, query, b, head,
                                   q_tile + stage * Tiles::kColumnTile);
      LoadTile<D, Tiles::kColumns>(a.dout, z, a.aligned, query, b, head,
                                   dout_tile + stage * Tiles::kColumnTile);
      if (threadIdx.x < Tiles::kColumns) {
        const int row = min(query + static_cast<int>(threadIdx.x), z.s - 1);
        lse[stage][threadIdx.x] = Log2OfSum(a.lse[rows + row]);
        delta[stage][threadIdx.x] = a.delta[rows + row];
      }
      if (z.threshold != 0) keep[stage].Fill(z, b, head, query, first);
    };
    const auto compute = [&](int query, int stage) {
      const S* const queries = q_tile + stage * Tiles::kColumnTile;
      const S* const douts = dout_tile + stage * Tiles::kColumnTile;
      float p[Tiles::kN][4] = {}, gradient[Tiles::kN][4] = {};
      RowsByRows<D>(k_tile + warp * 16 * kPitch<S, D>, queries, p);
      PlaceTile<kQueriesAreRows>(z, key, query, slope, p);
      RowsByRows<D>(v_tile + warp * 16 * kPitch<S, D>, douts, gradient);
      if (z.threshold != 0) DropTile<kQueriesAreRows>(z, keep[stage], warp * 16, gradient);
#pragma unroll
      for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = n * 8 + FragmentColumn(i);
          p[n][i] = Exp2(p[n][i] - lse[stage][column]);
          gradient[n][i] = p[n][i] * (gradient[n][i] - delta[stage][column]);
        }
      }
      if (z.threshold != 0) DropTile<kQueriesAreRows>(z, keep[stage], warp * 16, p);
      TileByRows<D>(p, douts, dv);
      TileByRows<D>(gradient, queries, dk);
    };
    ForTiles<Tiles>(z.QueriesBegin(first) / Tiles::kColumns * Tiles::kColumns,
                    z.QueriesEnd(first, Tiles::kRows), load, compute);
    __syncthreads();  // before tiles of the next head overwrite those of this one
  }
  const float one[2] = {1, 1}, scale[2] = {z.scale, z.scale};
  StoreRows<D>(dv, one, a.dv, z, key, b, kv_head);
  StoreRows<D>(dk, scale, a.dk, z, key, b, kv_head);
}

template <class S>
GradArgs<S> Raw(const AttentionGradArgs& a) {
  const int64_t d = a.shape.d;
  return {.z = RawShape(a.shape, a.dropout),
          .q = HeadsOf<S>(a.q),
          .k = HeadsOf<S>(a.k),
          .v = HeadsOf<S>(a.v),
          .o = HeadsOf<S>(a.o),
          .dout = HeadsOf<S>(a.do_),
          .dq = HeadsOf<S>(a.dq),
          .dk = HeadsOf<S>(a.dk),
          .dv = HeadsOf<S>(a.dv),
          .aligned = ViewAligned<S>(a.q, d) && ViewAligned<S>(a.k, d) && ViewAligned<S>(a.v, d) &&
                     ViewAligned<S>(a.do_, d),
          .lse = a.lse.Data<float>(),
          .delta = static_cast<float*>(a.workspace.data)};
}

}  // namespace

int64_t FlashSharedBytes(const AttentionShape& z) {
  int64_t bytes = 0;
  ForFlashCase(z, "attention", [&](auto zero, auto size) {
    using Tiles = FlashTiles<decltype(zero), decltype(size)::value>;
    bytes = std::max(Tiles::kForwardBytes, Tiles::kGradBytes) + Tiles::kStaticBytes;
  });
  return bytes;
}

int64_t FlashGradBytes(const AttentionShape& z) { return z.b * z.a * z.s * int64_t{sizeof(float)}; }

void FlashGrad(const Stream& stream, const AttentionGradArgs& args) {
  const AttentionShape& z = args.shape;
  ForFlashCase(z, "attention Grad", [&](auto zero, auto size) {
    using S = decltype(zero);
    constexpr int D = decltype(size)::value;
    using Tiles = FlashTiles<S, D>;
    const GradArgs<S> raw = Raw<S>(args);
    const cudaStream_t cuda_stream = cuda::Raw(stream);
    const int64_t warps = z.b * z.a * z.s;
    DeltaKernel<S><<<static_cast<unsigned>(base::CeilDiv(warps, kDeltaThreads / kWarp)),
                     kDeltaThreads, 0, cuda_stream>>>(raw);
    CheckLaunch("attention Grad");
    const auto blocks = static_cast<unsigned>(base::CeilDiv(z.s, Tiles::kRows));
    AllowShared(QueryKernel<S, D>, Tiles::kGradBytes);
    QueryKernel<S, D><<<dim3(blocks, static_cast<unsigned>(z.a), static_cast<unsigned>(z.b)),
                        Tiles::kThreads, Tiles::kGradBytes, cuda_stream>>>(raw);
    CheckLaunch("attention Grad");
    AllowShared(KeyKernel<S, D>, Tiles::kGradBytes);
    KeyKernel<S, D><<<dim3(blocks, static_cast<unsigned>(z.g), static_cast<unsigned>(z.b)),
                      Tiles::kThreads, Tiles::kGradBytes, cuda_stream>>>(raw);
    CheckLaunch("attention Grad");
  });
}

}  // namespace mt::kernels::cuda
