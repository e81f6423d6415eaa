// The gradient in three kernels: delta = sum of dout o per query; dq by blocks of queries; dk and
// dv by blocks of keys, in which logits are computed transposed. Probabilities come again from the
// kept log of the sum of exponentials (Dao et al. 2022, algorithm 4). Computing them twice costs
// two products of seven and needs no atomics.
#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_place.cuh"

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

// A warp per query and head. 256 threads.
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

// Where a tile's element (0, 0) stands, and what holds for all of it.
struct TilePlace {
  int query, key;
  bool all_see;
  float slope;
};

// Probability p of (query, key) from its raw logit, dropped, and the gradient of the scaled logit
// from dp = dout . v. `mask` multiplies the probability.
struct Element {
  float dropped, gradient;
};
__device__ __forceinline__ Element GradElement(const FlashShape& z, const TilePlace& place,
                                               int query, int key, float logit, float dp, float lse,
                                               float delta, float mask) {
  float x = logit * z.scale;
  if (place.slope != 0.0F) x += place.slope * static_cast<float>(key - query - z.lead);
  const float p = place.all_see || z.Sees(query, key) ? Exp(x - lse) : 0.0F;
  return {p * mask, p * (dp * mask - delta)};
}

// dq of kRows queries of one head. Shared: tiles of queries, dout, keys, values (dynamic), the
// tile's dropout bits.
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
  TilePlace place{.query = first + warp * 16, .slope = z.slopes != nullptr ? z.slopes[head] : 0.0F};
  LoadTile<D, Tiles::kRows>(a.q, z, a.aligned, first, b, head, q_tile);
  LoadTile<D, Tiles::kRows>(a.dout, z, a.aligned, first, b, head, dout_tile);
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(place.query + FragmentRow(2 * half), z.s - 1);
    lse[half] = a.lse[(int64_t{b} * z.a + head) * z.s + row];
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
    place.key = key;
    place.all_see = z.AllSee(place.query, 16, key, Tiles::kColumns);
    float logits[Tiles::kN][4] = {}, dp[Tiles::kN][4] = {};
    RowsByRows<D>(q_tile + warp * 16 * kPitch<S, D>, keys, logits);
    RowsByRows<D>(dout_tile + warp * 16 * kPitch<S, D>, v_tile + stage * Tiles::kColumnTile, dp);
#pragma unroll
    for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = FragmentRow(i), column = n * 8 + FragmentColumn(i);
        float mask = 1;
        if (z.threshold != 0) {
          mask = keep[stage].Keeps(warp * 16 + row, column) ? z.keep_scale : 0.0F;
        }
        dp[n][i] = GradElement(z, place, place.query + row, key + column, logits[n][i], dp[n][i],
                               lse[i / 2], delta[i / 2], mask)
                       .gradient;
      }
    }
    TileByRows<D>(dp, keys, acc);
  };
  ForTiles<Tiles>(z.KeysBegin(first) / Tiles::kColumns * Tiles::kColumns,
                  z.KeysEnd(first, Tiles::kRows), load, compute);
  const float scale[2] = {z.scale, z.scale};
  StoreRows<D>(acc, scale, a.dq, z, place.query, b, head);
}

// dk and dv of kRows keys of one key/value head, over all query heads of its group. Shared: tiles
// of keys, values, queries, dout (dynamic), the tile's log-sum-exps, deltas and dropout bits.
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
  TilePlace place{.key = first + warp * 16};
  LoadTile<D, Tiles::kRows>(a.k, z, a.aligned, first, b, kv_head, k_tile);
  LoadTile<D, Tiles::kRows>(a.v, z, a.aligned, first, b, kv_head, v_tile);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int head = kv_head * per_group; head < (kv_head + 1) * per_group; ++head) {
    place.slope = z.slopes != nullptr ? z.slopes[head] : 0.0F;
    const int64_t rows = (int64_t{b} * z.a + head) * z.s;
    const auto load = [&](int query, int stage) {
      LoadTile<D, Tiles::kColumns>(a.q, z, a.aligned, query, b, head,
                                   q_tile + stage * Tiles::kColumnTile);
      LoadTile<D, Tiles::kColumns>(a.dout, z, a.aligned, query, b, head,
                                   dout_tile + stage * Tiles::kColumnTile);
      if (threadIdx.x < Tiles::kColumns) {
        const int row = min(query + static_cast<int>(threadIdx.x), z.s - 1);
        lse[stage][threadIdx.x] = a.lse[rows + row];
        delta[stage][threadIdx.x] = a.delta[rows + row];
      }
      if (z.threshold != 0) keep[stage].Fill(z, b, head, query, first);
    };
    const auto compute = [&](int query, int stage) {
      const S* const queries = q_tile + stage * Tiles::kColumnTile;
      const S* const douts = dout_tile + stage * Tiles::kColumnTile;
      place.query = query;
      place.all_see = z.AllSee(query, Tiles::kColumns, place.key, 16);
      float dropped[Tiles::kN][4] = {}, gradient[Tiles::kN][4] = {};
      RowsByRows<D>(k_tile + warp * 16 * kPitch<S, D>, queries, dropped);
      RowsByRows<D>(v_tile + warp * 16 * kPitch<S, D>, douts, gradient);
#pragma unroll
      for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = FragmentRow(i), column = n * 8 + FragmentColumn(i);
          float mask = 1;
          if (z.threshold != 0) {
            mask = keep[stage].Keeps(column, warp * 16 + row) ? z.keep_scale : 0.0F;
          }
          const Element element =
              GradElement(z, place, query + column, place.key + row, dropped[n][i], gradient[n][i],
                          lse[stage][column], delta[stage][column], mask);
          dropped[n][i] = element.dropped;
          gradient[n][i] = element.gradient;
        }
      }
      TileByRows<D>(dropped, douts, dv);
      TileByRows<D>(gradient, queries, dk);
    };
    ForTiles<Tiles>(z.QueriesBegin(first) / Tiles::kColumns * Tiles::kColumns,
                    z.QueriesEnd(first, Tiles::kRows), load, compute);
    __syncthreads();  // before the next head's tiles overwrite the last ones
  }
  const float one[2] = {1, 1}, scale[2] = {z.scale, z.scale};
  StoreRows<D>(dv, one, a.dv, z, place.key, b, kv_head);
  StoreRows<D>(dk, scale, a.dk, z, place.key, b, kv_head);
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
    constexpr size_t kBytes =
        2 * (Tiles::kRowTile + Tiles::kStages * Tiles::kColumnTile) * sizeof(S);
    const auto blocks = static_cast<unsigned>(base::CeilDiv(z.s, Tiles::kRows));
    AllowShared(QueryKernel<S, D>, kBytes);
    QueryKernel<S, D><<<dim3(blocks, static_cast<unsigned>(z.a), static_cast<unsigned>(z.b)),
                        Tiles::kThreads, kBytes, cuda_stream>>>(raw);
    CheckLaunch("attention Grad");
    AllowShared(KeyKernel<S, D>, kBytes);
    KeyKernel<S, D><<<dim3(blocks, static_cast<unsigned>(z.g), static_cast<unsigned>(z.b)),
                      Tiles::kThreads, kBytes, cuda_stream>>>(raw);
    CheckLaunch("attention Grad");
  });
}

}  // namespace mt::kernels::cuda
