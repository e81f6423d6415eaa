// Custom GEMMs with SwiGLU (Shazeer 2020): the forward of fc1, whose two halves of features are
// gate and up, and the input gradient of fc2, from which both halves get a gradient. Forward, a
// tile has 64 features of each half, so that a thread has both partners in its own registers.
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/gemm/quarter_pipe.cuh"

namespace mt::kernels::cuda {
namespace {

// x = 1 / (1 + e^-x). Written in stages over all eight elements; otherwise the compiler emits eight
// dependency chains one after the other.
__device__ __forceinline__ void ApplySigmoid(Float8* x) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x->v[i] *= -kLog2E;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x->v[i]));
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x->v[i] += 1.0F;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) asm volatile("rcp.approx.ftz.f32 %0, %0;" : "+f"(x->v[i]));
}

// Processes half of a tile's tokens at a time: gate, up and y. (With gate and up in one pair of
// quarters and y in the other, the compiler keeps words of the first for the second, and spills.)
template <class S>
class SwigluEpilogue {
 public:
  using Element = S;
  static constexpr bool kTransposedA = false, kGated = true;
  using Pipe = QuarterPipe<kTileTokens / kHalfTileTokens, 3, /*kLoadsParts=*/false>;
  struct Args {
    CUtensorMap gate, up, act;
  };

  static __device__ __forceinline__ void Copy(const GemmBlock& block, const Args& args,
                                              const TileCut& cut) {
    Pipe::Copy(block, cut, [&](const TilePlace& at, int part, uint32_t from) {
      const int x = at.feature / 2, y = TokenOf(at, part);
      StoreTile(&args.gate, x, y, from);
      StoreTile(&args.up, x, y, from + kQuarterBytes);
      StoreTile(&args.act, x, y, from + 2 * kQuarterBytes);
    });
  }

  __device__ __forceinline__ SwigluEpilogue(const Args& /*args*/, const TilePlace& /*at*/,
                                            int /*features*/) {}

  __device__ __forceinline__ void Finish(const GemmBlock& block, int group,
                                         const float (&sums)[2][kGemmSums]) const {
    const uint32_t place = PlaceInQuarter();
#pragma unroll
    for (int part = 0; part < Pipe::kParts; ++part) {
      const uint32_t first_box = Pipe::BeginPart(block, group, part) + place;
#pragma unroll
      for (int j = 0; j < kHalfTileTokens / 16; ++j) {
        const int first = part * kHalfTileTokens / 2 + j * kGroup;
        const uint32_t to = first_box + j * 16 * kBoxRowBytes;
        const Stored8<S> gate = Rounded(sums[0], first), up = Rounded(sums[1], first);
        StoreTransposed(to, gate.word);
        StoreTransposed(to + kQuarterBytes, up.word);
        const Float8 g = Widen(gate), u = Widen(up);  // rounded, as the gradient will read them
        Float8 y = g;
        ApplySigmoid(&y);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) y.v[i] *= g.v[i] * u.v[i];
        StoreTransposed(to + 2 * kQuarterBytes, Narrow<S>(y).word);
      }
      Pipe::EndPart(block, part);
    }
  }

 private:
  static __device__ __forceinline__ Stored8<S> Rounded(const float (&sums)[kGemmSums], int first) {
    Float8 v;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) v.v[i] = sums[first + i];
    return Narrow<S>(v);
  }
};

// A quarter's gate and up are loaded into a pair of buffers, where their gradients overwrite them.
template <class S>
class SwigluGradEpilogue {
 public:
  using Element = S;
  static constexpr bool kTransposedA = true, kGated = false;
  using Pipe = QuarterPipe<kTileQuarters, 2, /*kLoadsParts=*/true>;
  struct Args {
    CUtensorMap gate, up, dgate, dup;
  };

  static __device__ __forceinline__ void Copy(const GemmBlock& block, const Args& args,
                                              const TileCut& cut) {
    Pipe::Copy(
        block, cut,
        [&](const TilePlace& at, int quarter, uint32_t to, uint32_t barrier) {
          const int x = FeatureOf(at, quarter), y = TokenOf(at, quarter);
          CopyTile(to, &args.gate, x, y, barrier);
          CopyTile(to + kQuarterBytes, &args.up, x, y, barrier);
        },
        [&](const TilePlace& at, int quarter, uint32_t from) {
          const int x = FeatureOf(at, quarter), y = TokenOf(at, quarter);
          StoreTile(&args.dgate, x, y, from);
          StoreTile(&args.dup, x, y, from + kQuarterBytes);
        });
  }

  __device__ __forceinline__ SwigluGradEpilogue(const Args& /*args*/, const TilePlace& /*at*/,
                                                int /*features*/) {}

  __device__ __forceinline__ void Finish(const GemmBlock& block, int group,
                                         const float (&sums)[2][kGemmSums]) const {
    const uint32_t place = PlaceInQuarter();
#pragma unroll
    for (int quarter = 0; quarter < kTileQuarters; ++quarter) {
      const int pair = quarter % 2, half = quarter / 2;  // each pair serves half of the tokens
      const uint32_t first_box = Pipe::BeginPart(block, group, quarter) + place;
#pragma unroll
      for (int j = 0; j < kHalfTileTokens / 16; ++j) {
        const uint32_t at = first_box + j * 16 * kBoxRowBytes;
        Stored8<S> gate, up;
        LoadTransposed(at, gate.word);
        LoadTransposed(at + kQuarterBytes, up.word);
        Float8 d;
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          d.v[i] = sums[half][pair * kHalfTileTokens / 2 + j * kGroup + i];
        }
        Gradients(d, &gate, &up);
        StoreTransposed(at, gate.word);
        StoreTransposed(at + kQuarterBytes, up.word);
      }
      Pipe::EndPart(block, quarter);
    }
  }

 private:
  // Replaces gate and up with their gradients, given the gradient d of silu(gate) * up. With s =
  // sigmoid(x) silu's slope is s + x s (1 - s).
  static __device__ __forceinline__ void Gradients(const Float8& d, Stored8<S>* gate,
                                                   Stored8<S>* up) {
    const Float8 x = Widen(*gate), u = Widen(*up);
    Float8 s = x, dgate, dup;
    ApplySigmoid(&s);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float silu = x.v[i] * s.v[i];
      dup.v[i] = d.v[i] * silu;
      dgate.v[i] = d.v[i] * u.v[i] * fmaf(silu, 1.0F - s.v[i], s.v[i]);
    }
    *gate = Narrow<S>(dgate);
    *up = Narrow<S>(dup);
  }
};

}  // namespace

void LaunchSwigluGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                      const GemmOperands& operands) {
  const HopperGemm call = HopperGemmOf(limits, key, operands);
  const int64_t half = key.m / 2;
  ForGpuType(key.in, "ForwardAct", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (sizeof(S) == kElementBytes) {
      LaunchGemm<SwigluEpilogue<S>>(stream, call,
                                    {.gate = HalfMapOf(key, operands.aux, half, 0),
                                     .up = HalfMapOf(key, operands.aux, half, 1),
                                     .act = ResultMapOf(key, operands.d, half)},
                                    "ForwardAct");
    }
  });
}

void LaunchSwigluGradGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                          const GemmOperands& operands) {
  const HopperGemm call = HopperGemmOf(limits, key, operands);
  ForGpuType(key.in, "InputGradAct", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (sizeof(S) == kElementBytes) {
      LaunchGemm<SwigluGradEpilogue<S>>(stream, call,
                                        {.gate = HalfMapOf(key, operands.aux, key.m, 0),
                                         .up = HalfMapOf(key, operands.aux, key.m, 1),
                                         .dgate = HalfMapOf(key, operands.d, key.m, 0),
                                         .dup = HalfMapOf(key, operands.d, key.m, 1)},
                                        "InputGradAct");
    }
  });
}

}  // namespace mt::kernels::cuda
