// A custom GEMM times GELU's slope, with the sums of its features over tokens: the input gradient
// of fc2 with the bias gradient of fc1. The slope's inputs are loaded into the quarters, where the
// results overwrite them.
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/gelu.cuh"
#include "kernels/cuda/gemm/quarter_pipe.cuh"

namespace mt::kernels::cuda {
namespace {

// Clamps both values of a word to [-16, 16], outside of which the power that the slope takes is
// infinite or 0, so that the slope is 0 or 1; NaN stays NaN.
template <class S>
__device__ __forceinline__ uint32_t CutTo16(uint32_t pair) {
  if constexpr (DTypeOf<S>() == DType::kBf16) {
    asm("min.NaN.bf16x2 %0, %0, %1;\nmax.NaN.bf16x2 %0, %0, %2;"
        : "+r"(pair)
        : "r"(0x41804180U), "r"(0xC180C180U));
  } else {
    asm("min.NaN.f16x2 %0, %0, %1;\nmax.NaN.f16x2 %0, %0, %2;"
        : "+r"(pair)
        : "r"(0x4C004C00U), "r"(0xCC00CC00U));
  }
  return pair;
}

// v[i] *= gelu'(x[i])
template <class S>
__device__ __forceinline__ void TimesGeluSlope(const uint32_t (&words)[4], Float8* v) {
  Stored8<S> cut;
#pragma unroll
  for (int i = 0; i < 4; ++i) cut.word[i] = CutTo16<S>(words[i]);
  Float8 s = Widen(cut), w;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float x = s.v[i];
    s.v[i] = GeluMinusZ(x, kLog2E);
    w.v[i] = x * GeluInnerSlope(x);
  }
  InverseOfOnePlusPower(s.v);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) w.v[i] = fmaf(w.v[i], fmaf(-s.v[i], s.v[i], s.v[i]), s.v[i]);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) v->v[i] *= w.v[i];
}

template <class S>
class GeluGradEpilogue {
 public:
  using Element = S;
  static constexpr bool kTransposedA = true, kGated = false;
  struct Args {
    CUtensorMap pre, dpre;
    float* partials;  // [token tiles, features]
  };
  using Pipe = QuarterPipe<kTileQuarters, 1, /*kLoadsParts=*/true>;

  static __device__ __forceinline__ void Copy(const GemmBlock& block, const Args& args,
                                              const TileCut& cut) {
    Pipe::Copy(
        block, cut,
        [&](const TilePlace& at, int quarter, uint32_t to, uint32_t barrier) {
          CopyTile(to, &args.pre, FeatureOf(at, quarter), TokenOf(at, quarter), barrier);
        },
        [&](const TilePlace& at, int quarter, uint32_t from) {
          StoreTile(&args.dpre, FeatureOf(at, quarter), TokenOf(at, quarter), from);
        });
  }

  __device__ __forceinline__ GeluGradEpilogue(const Args& args, const TilePlace& at, int features)
      : out_(args.partials + static_cast<int64_t>(at.token_tile) * features + at.feature),
        left_(features - at.feature) {}

  __device__ __forceinline__ void Finish(const GemmBlock& block, int group,
                                         const float (&sums)[2][kGemmSums]) const {
    const uint32_t place = PlaceInQuarter();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float low = 0, high = 0;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int quarter = 2 * half + part;
        const uint32_t at = Pipe::BeginPart(block, group, quarter) + place;
        uint32_t words[2][4];
        LoadTransposed(at, words[0]);
#pragma unroll
        for (int j = 0; j < kHalfTileTokens / 16; ++j) {
          uint32_t(&now)[4] = words[j % 2];
          if (j + 1 < kHalfTileTokens / 16) {
            LoadTransposed(at + (j + 1) * 16 * kBoxRowBytes, words[(j + 1) % 2]);
          }
          Float8 v;
#pragma unroll
          for (int i = 0; i < kGroup; ++i) {
            v.v[i] = sums[half][part * kHalfTileTokens / 2 + j * kGroup + i];
          }
          TimesGeluSlope<S>(now, &v);
          low += (v.v[0] + v.v[1]) + (v.v[4] + v.v[5]);
          high += (v.v[2] + v.v[3]) + (v.v[6] + v.v[7]);
#pragma unroll
          for (int i = 0; i < 4; ++i) now[i] = NarrowPair<S>(v.v[2 * i], v.v[2 * i + 1]);
          StoreTransposed(at + j * 16 * kBoxRowBytes, now);
        }
        Pipe::EndPart(block, quarter);
      }
      PutSums(half * kBoxFeatures + FeatureInHalf(), low, high);
    }
  }

 private:
  // Adds up four lanes' sums of one feature and of the feature 8 higher, and writes them out.
  __device__ __forceinline__ void PutSums(int feature, float low, float high) const {
#pragma unroll
    for (int i = 1; i < 4; i *= 2) {
      low += __shfl_xor_sync(~0U, low, i);
      high += __shfl_xor_sync(~0U, high, i);
    }
    if (LaneOfWarp() % 4 != 0) return;
    if (feature < left_) out_[feature] = low;
    if (feature + 8 < left_) out_[feature + 8] = high;
  }

  float* out_;
  int left_;  // number of features from the tile's first one on
};

}  // namespace

void LaunchGeluGradGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                        const GemmOperands& operands, float* partials) {
  const HopperGemm call = HopperGemmOf(limits, key, operands);
  ForGpuType(key.in, "InputGradAct", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (sizeof(S) == kElementBytes) {
      LaunchGemm<GeluGradEpilogue<S>>(stream, call,
                                      {.pre = ResultMapOf(key, operands.aux, key.m),
                                       .dpre = ResultMapOf(key, operands.d, key.m),
                                       .partials = partials},
                                      "InputGradAct");
    }
  });
}

}  // namespace mt::kernels::cuda
