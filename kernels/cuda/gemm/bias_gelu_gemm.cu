// Custom GEMMs that store their sums with a bias, or with GELU and an optional bias.
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/gelu.cuh"
#include "kernels/cuda/gemm/quarter_pipe.cuh"

namespace mt::kernels::cuda {
namespace {

// x = gelu(x)
__device__ __forceinline__ void ApplyGelu(Float8* x) {
  float s[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) s[i] = GeluMinusZ(x->v[i], kLog2E);
  InverseOfOnePlusPower(s);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x->v[i] *= s[i];
}

template <class S, bool kGelu>
class BiasGeluEpilogue {
 public:
  using Element = S;
  static constexpr bool kTransposedA = false, kGated = false;
  struct Args {
    CUtensorMap sum, act;
    const S* bias;  // [features], or null
  };
  // With GELU the sums and the activations of a quarter.
  using Pipe = QuarterPipe<kTileQuarters, kGelu ? 2 : 1, /*kLoadsParts=*/false>;

  static __device__ __forceinline__ void Copy(const GemmBlock& block, const Args& args,
                                              const TileCut& cut) {
    Pipe::Copy(block, cut, [&](const TilePlace& at, int quarter, uint32_t from) {
      const int x = FeatureOf(at, quarter), y = TokenOf(at, quarter);
      StoreTile(&args.sum, x, y, from);
      if (kGelu) StoreTile(&args.act, x, y, from + kQuarterBytes);
    });
  }

  __device__ __forceinline__ BiasGeluEpilogue(const Args& args, const TilePlace& at, int features) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int feature = at.feature + i / 2 * kBoxFeatures + FeatureInHalf() + i % 2 * 8;
      bias_[i] = args.bias != nullptr && feature < features ? Widen(args.bias[feature]) : 0.0F;
    }
  }

  __device__ __forceinline__ void Finish(const GemmBlock& block, int group,
                                         const float (&sums)[2][kGemmSums]) const {
    const uint32_t place = PlaceInQuarter();
#pragma unroll
    for (int quarter = 0; quarter < kTileQuarters; ++quarter) {
      const int half = quarter / 2, part = quarter % 2;
      const uint32_t to = Pipe::BeginPart(block, group, quarter) + place;
#pragma unroll
      for (int j = 0; j < kHalfTileTokens / 16; ++j) {
        Float8 v;
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          v.v[i] =
              sums[half][part * kHalfTileTokens / 2 + j * kGroup + i] + bias_[2 * half + i / 2 % 2];
        }
        const Stored8<S> stored = Narrow<S>(v);
        StoreTransposed(to + j * 16 * kBoxRowBytes, stored.word);
        if constexpr (kGelu) {
          v = Widen(stored);  // rounded, as the gradient will read it
          ApplyGelu(&v);
          StoreTransposed(to + kQuarterBytes + j * 16 * kBoxRowBytes, Narrow<S>(v).word);
        }
      }
      Pipe::EndPart(block, quarter);
    }
  }

 private:
  float bias_[4];  // indexed by half of the features and by pair of accumulators
};

}  // namespace

void LaunchBiasGeluGemm(const Stream& stream, const DeviceLimits& limits, const GemmKey& key,
                        const GemmOperands& operands) {
  const HopperGemm call = HopperGemmOf(limits, key, operands);
  const bool gelu = key.epilogue == Epilogue::kGeluAux || key.epilogue == Epilogue::kGeluAuxBias;
  const bool bias = key.epilogue == Epilogue::kBias || key.epilogue == Epilogue::kGeluAuxBias;
  ForGpuType(key.in, "custom GEMM", [&](auto zero) {
    using S = decltype(zero);
    if constexpr (sizeof(S) == kElementBytes) {
      const auto launch = [&](auto epilogue) {
        using E = typename decltype(epilogue)::type;
        typename E::Args args{.sum = ResultMapOf(key, gelu ? operands.aux : operands.d, key.m),
                              .act = {},
                              .bias = bias ? static_cast<const S*>(operands.bias) : nullptr};
        if (gelu) args.act = ResultMapOf(key, operands.d, key.m);
        LaunchGemm<E>(stream, call, args, "custom GEMM");
      };
      if (gelu) return launch(std::type_identity<BiasGeluEpilogue<S, true>>());
      launch(std::type_identity<BiasGeluEpilogue<S, false>>());
    }
  });
}

}  // namespace mt::kernels::cuda
