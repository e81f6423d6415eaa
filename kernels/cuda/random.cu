// Random initial values with the arithmetic of kernels/cpu/random.cc. Everything is fp64, so that
// the one rounding to f32 hides the last-bit differences between the host's and the GPU's log, sin
// and cos.
#include <cmath>

#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/elementwise.cuh"

namespace mt::kernels::cuda {
namespace {

struct NormalPair {
  double even, odd;
};

// Returns standard normal numbers 2 * pair and 2 * pair + 1 of the stream `key` (Box & Muller
// 1958).
__device__ NormalPair Normals(uint64_t key, uint64_t pair) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const Philox4 bits =
      Philox(key, {{static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), 0, 0}});
  const uint64_t first = bits.word[0] | static_cast<uint64_t>(bits.word[1]) << 32;
  const uint64_t second = bits.word[2] | static_cast<uint64_t>(bits.word[3]) << 32;
  const double u1 = static_cast<double>((first >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double u2 = static_cast<double>(second >> 11) * 0x1p-53;       // [0, 1)
  const double radius = sqrt(-2.0 * log(u1));
  return {radius * cos(kTwoPi * u2), radius * sin(kTwoPi * u2)};
}

template <class S>
struct NormalOp {
  uint64_t key;
  int64_t first_index;
  base::Runs numbers, places;
  double std;
  S* out;
  template <Access kAccess>
  __device__ void Run(int64_t first, int count) const {
    NormalPair pair{};
    int64_t drawn = -1;
    for (int i = 0; i < count; ++i) {
      const int64_t index = first_index + numbers.At(first + i);
      if (index / 2 != drawn) {
        drawn = index / 2;
        pair = Normals(key, static_cast<uint64_t>(drawn));
      }
      const double x = std * (index % 2 == 0 ? pair.even : pair.odd);
      out[places.At(first + i)] = Narrow<S>(static_cast<float>(x));
    }
  }
};

}  // namespace

void CudaRandom::FillNormal(Stream& stream, const FillNormalArgs& a) const {
  CHECK_GE(a.first_index, 0);
  ForGpuType(a.out.dtype, "FillNormal", [&](auto zero) {
    using S = decltype(zero);
    LaunchElementwise(stream,
                      NormalOp<S>{.key = a.key,
                                  .first_index = a.first_index,
                                  .numbers = a.numbers,
                                  .places = a.places,
                                  .std = a.std,
                                  .out = a.out.Data<S>()},
                      a.places.CountIn(a.out.NumElements()), true, "FillNormal");
  });
}

}  // namespace mt::kernels::cuda
