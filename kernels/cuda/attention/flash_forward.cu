// The forward kernel of the custom attention (FlashAttention-2: Dao 2023, §3.1): each block keeps a
// tile of queries and walks over the keys with an online softmax, in units of log 2 so that
// exponentials are single ex2 instructions.
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/flash_place.cuh"

namespace mt::kernels::cuda {
namespace {

template <class S>
struct ForwardArgs {
  FlashShape z;
  Heads<S> q, k, v, o;
  bool aligned;
  float* lse;  // [b, a, s]
};

// Running maximum, in units of log 2, and running sum of a lane's two rows.
struct Softmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

// Turns logits in units of log 2 into probabilities relative to the running maximum, and rescales
// the earlier results.
template <int N, int kAcc>
__device__ __forceinline__ void SoftmaxTile(Softmax* state, float (&tile)[N][4],
                                            float (&acc)[kAcc][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = state->max[half];
#pragma unroll
    for (int n = 0; n < N; ++n) max = fmaxf(max, fmaxf(tile[n][2 * half], tile[n][2 * half + 1]));
    max = QuadMax(max);
    const float shift = max == -INFINITY ? 0.0F : max;  // a row without a visible key so far
    const float shrink = Exp2(state->max[half] - shift);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        tile[n][i] = Exp2(tile[n][i] - shift);
        sum += tile[n][i];
      }
    }
    state->sum[half] = state->sum[half] * shrink + QuadSum(sum);
    state->max[half] = max;
#pragma unroll
    for (int n = 0; n < kAcc; ++n) {
      acc[n][2 * half] *= shrink;
      acc[n][2 * half + 1] *= shrink;
    }
  }
}

// A block handles kRows queries of one head; keys and values pass by tile by tile. Shared memory: a
// tile of queries, kStages tiles of keys and of values (dynamic), and dropout bits.
template <class S, int D>
__global__ void __launch_bounds__(FlashTiles<S, D>::kThreads)
    ForwardKernel(const ForwardArgs<S> a) {
  using Tiles = FlashTiles<S, D>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ KeepBits<Tiles::kRows, Tiles::kColumns> keep[Tiles::kStages];
  S* const q_tile = reinterpret_cast<S*>(shared);
  S* const k_tile = q_tile + Tiles::kRowTile;
  S* const v_tile = k_tile + Tiles::kStages * Tiles::kColumnTile;
  const FlashShape& z = a.z;
  // The last queries attend to the most keys, so they go first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiles::kRows;
  const int head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int kv_head = head / (z.a / z.g), warp = static_cast<int>(threadIdx.x) / kWarp;
  const int query = first + warp * 16;
  const float slope = z.slopes != nullptr ? z.slopes[head] : 0.0F;
  constexpr bool kQueriesAreRows = true;
  LoadTile<D, Tiles::kRows>(a.q, z, a.aligned, first, b, head, q_tile);
  float acc[D / 8][4] = {};
  Softmax state;
  const auto load = [&](int key, int stage) {
    LoadTile<D, Tiles::kColumns>(a.k, z, a.aligned, key, b, kv_head,
                                 k_tile + stage * Tiles::kColumnTile);
    LoadTile<D, Tiles::kColumns>(a.v, z, a.aligned, key, b, kv_head,
                                 v_tile + stage * Tiles::kColumnTile);
    if (z.threshold != 0) keep[stage].Fill(z, b, head, first, key);
  };
  const auto compute = [&](int key, int stage) {
    float tile[Tiles::kN][4] = {};
    RowsByRows<D>(q_tile + warp * 16 * kPitch<S, D>, k_tile + stage * Tiles::kColumnTile, tile);
    PlaceTile<kQueriesAreRows>(z, query, key, slope, tile);
    SoftmaxTile(&state, tile, acc);
    if (z.threshold != 0) {
#pragma unroll
      for (int n = 0; n < Tiles::kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool kept =
              keep[stage].Keeps(warp * 16 + FragmentRow(i), n * 8 + FragmentColumn(i));
          tile[n][i] *= kept ? z.keep_scale : 0.0F;
        }
      }
    }
    TileByRows<D>(tile, static_cast<const S*>(v_tile + stage * Tiles::kColumnTile), acc);
  };
  ForTiles<Tiles>(z.KeysBegin(first) / Tiles::kColumns * Tiles::kColumns,
                  z.KeysEnd(first, Tiles::kRows), load, compute);
  const float inverse[2] = {state.sum[0] == 0 ? 0.0F : 1.0F / state.sum[0],
                            state.sum[1] == 0 ? 0.0F : 1.0F / state.sum[1]};
  StoreRows<D>(acc, inverse, a.o, z, query, b, head);
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query + FragmentRow(2 * half);
    if (row >= z.s) continue;
    a.lse[(int64_t{b} * z.a + head) * z.s + row] =
        state.sum[half] == 0 ? -INFINITY : state.max[half] * kLog2 + logf(state.sum[half]);
  }
}

}  // namespace

void FlashForward(const Stream& stream, const AttentionForwardArgs& args) {
  const AttentionShape& z = args.shape;
  ForFlashCase(z, "attention Forward", [&](auto zero, auto size) {
    using S = decltype(zero);
    constexpr int D = decltype(size)::value;
    using Tiles = FlashTiles<S, D>;
    const ForwardArgs<S> raw{.z = RawShape(z, args.dropout),
                             .q = HeadsOf<S>(args.q),
                             .k = HeadsOf<S>(args.k),
                             .v = HeadsOf<S>(args.v),
                             .o = HeadsOf<S>(args.o),
                             .aligned = ViewAligned<S>(args.q, z.d) &&
                                        ViewAligned<S>(args.k, z.d) && ViewAligned<S>(args.v, z.d),
                             .lse = args.lse.Data<float>()};
    const dim3 grid(static_cast<unsigned>(base::CeilDiv(z.s, Tiles::kRows)),
                    static_cast<unsigned>(z.a), static_cast<unsigned>(z.b));
    const cudaStream_t cuda_stream = Raw(stream);
    AllowShared(ForwardKernel<S, D>, Tiles::kForwardBytes);
    ForwardKernel<S, D><<<grid, Tiles::kThreads, Tiles::kForwardBytes, cuda_stream>>>(raw);
    CheckLaunch("attention Forward");
  });
}

}  // namespace mt::kernels::cuda
