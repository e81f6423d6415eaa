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
  if (index >= z.b * z.a * z.s) return;
  const int64_t head = index % z.a, b = index / z.a % z.b, row = index / z.a / z.b;
  const S* const o = a.o.Row(row, b, head);
  const S* const dout = a.dout.Row(row, b, head);
  float sum = 0;
  for (int64_t c = lane; c < z.d; c += kWarp) sum += Widen(o[c]) * Widen(dout[c]);
  sum = WarpSum(sum);
  if (lane == 0) a.delta[(b * z.a + head) * z.s + row] = sum;
}

// Probability p of (query, key) from its raw logit, dropped, and the gradient of the scaled logit
// from dp = dout . v.
struct Element {
  float dropped, gradient;
};
__device__ __forceinline__ Element GradElement(const FlashShape& z, int64_t b, int64_t head,
                                               int64_t query, int64_t key, float slope, float logit,
                                               float dp, float lse, float delta) {
  if (!z.Sees(query, key)) return {0, 0};
  const float x = logit * z.scale + slope * static_cast<float>(key - query - z.lead);
  const float p = Exp(x - lse);
  const float mask = z.threshold != 0 ? z.Mask(b, head, query, key) : 1.0F;
  return {p * mask, p * (dp * mask - delta)};
}

// dq of kRows queries of one head. Shared: tiles of queries, dout, keys, values.
template <class S, int D>
__global__ void __launch_bounds__(FlashTiles<S, D>::kThreads) QueryKernel(const GradArgs<S> a) {
  using Tiles = FlashTiles<S, D>;
  extern __shared__ __align__(16) unsigned char shared[];
  S* const q_tile = reinterpret_cast<S*>(shared);
  S* const dout_tile = q_tile + Tiles::kRowTile;
  S* const k_tile = dout_tile + Tiles::kRowTile;
  S* const v_tile = k_tile + Tiles::kColumnTile;
  const FlashShape& z = a.z;
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * Tiles::kRows;
  const int64_t head = blockIdx.y, b = blockIdx.z, kv_head = head / (z.a / z.g);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t query = first + warp * 16;
  const float slope = z.slopes != nullptr ? z.slopes[head] : 0.0F;
  LoadTile<D, Tiles::kRows>(a.q, z, a.aligned, first, b, head, q_tile);
  LoadTile<D, Tiles::kRows>(a.dout, z, a.aligned, first, b, head, dout_tile);
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = min(query + FragmentRow(2 * half), z.s - 1);
    lse[half] = a.lse[(b * z.a + head) * z.s + row];
    delta[half] = a.delta[(b * z.a + head) * z.s + row];
  }
  float acc[D / 8][4] = {};
  const int64_t end = z.KeysEnd(first, Tiles::kRows);
  for (int64_t key = z.KeysBegin(first) / Tiles::kColumns * Tiles::kColumns; key < end;
       key += Tiles::kColumns) {
    __syncthreads();
    LoadTile<D, Tiles::kColumns>(a.k, z, a.aligned, key, b, kv_head, k_tile);
    LoadTile<D, Tiles::kColumns>(a.v, z, a.aligned, key, b, kv_head, v_tile);
    __syncthreads();
    float logits[Tiles::kN][4] = {}, dp[Tiles::kN][4] = {};
    RowsByRows<D>(q_tile + warp * 16 * kPitch<S, D>, k_tile, logits);
    RowsByRows<D>(dout_tile + warp * 16 * kPitch<S, D>, v_tile, dp);
#pragma unroll
    for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        dp[n][i] = GradElement(z, b, head, query + FragmentRow(i), key + n * 8 + FragmentColumn(i),
                               slope, logits[n][i], dp[n][i], lse[i / 2], delta[i / 2])
                       .gradient;
      }
    }
    TileByRows<D>(dp, static_cast<const S*>(k_tile), acc);
  }
  const float scale[2] = {z.scale, z.scale};
  StoreRows<D>(acc, scale, a.dq, z, query, b, head);
}

// dk and dv of kRows keys of one key/value head, over all query heads of its group. Shared: tiles
// of keys, values, queries, dout.
template <class S, int D>
__global__ void __launch_bounds__(FlashTiles<S, D>::kThreads) KeyKernel(const GradArgs<S> a) {
  using Tiles = FlashTiles<S, D>;
  extern __shared__ __align__(16) unsigned char shared[];
  S* const k_tile = reinterpret_cast<S*>(shared);
  S* const v_tile = k_tile + Tiles::kRowTile;
  S* const q_tile = v_tile + Tiles::kRowTile;
  S* const dout_tile = q_tile + Tiles::kColumnTile;
  const FlashShape& z = a.z;
  const int64_t first = int64_t{blockIdx.x} * Tiles::kRows;
  const int64_t kv_head = blockIdx.y, b = blockIdx.z, per_group = z.a / z.g;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t key = first + warp * 16;
  LoadTile<D, Tiles::kRows>(a.k, z, a.aligned, first, b, kv_head, k_tile);
  LoadTile<D, Tiles::kRows>(a.v, z, a.aligned, first, b, kv_head, v_tile);
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int64_t head = kv_head * per_group; head < (kv_head + 1) * per_group; ++head) {
    const float slope = z.slopes != nullptr ? z.slopes[head] : 0.0F;
    const float* const lse = a.lse + (b * z.a + head) * z.s;
    const float* const delta = a.delta + (b * z.a + head) * z.s;
    const int64_t end = z.QueriesEnd(first, Tiles::kRows);
    for (int64_t query = z.QueriesBegin(first) / Tiles::kColumns * Tiles::kColumns; query < end;
         query += Tiles::kColumns) {
      __syncthreads();
      LoadTile<D, Tiles::kColumns>(a.q, z, a.aligned, query, b, head, q_tile);
      LoadTile<D, Tiles::kColumns>(a.dout, z, a.aligned, query, b, head, dout_tile);
      __syncthreads();
      float dropped[Tiles::kN][4] = {}, gradient[Tiles::kN][4] = {};
      RowsByRows<D>(k_tile + warp * 16 * kPitch<S, D>, q_tile, dropped);
      RowsByRows<D>(v_tile + warp * 16 * kPitch<S, D>, dout_tile, gradient);
#pragma unroll
      for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t column = query + n * 8 + FragmentColumn(i);
          const int64_t safe = min(column, z.s - 1);
          const Element element =
              GradElement(z, b, head, column, key + FragmentRow(i), slope, dropped[n][i],
                          gradient[n][i], lse[safe], delta[safe]);
          dropped[n][i] = element.dropped;
          gradient[n][i] = element.gradient;
        }
      }
      TileByRows<D>(dropped, static_cast<const S*>(dout_tile), dv);
      TileByRows<D>(gradient, static_cast<const S*>(q_tile), dk);
    }
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
    constexpr size_t kBytes = 2 * (Tiles::kRowTile + Tiles::kColumnTile) * sizeof(S);
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
