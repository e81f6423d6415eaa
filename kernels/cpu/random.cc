// Random initial values. Plain libm in fp64, compiled without MT_CPU_ARCH: initial values are part
// of a job's definition, so they must not depend on the instruction set that the loops were
// compiled for.
#include "kernels/core/random.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {
namespace {

struct NormalPair {
  double even, odd;
};

// Returns standard normal numbers 2 * pair and 2 * pair + 1 of the stream `key` (Box & Muller
// 1958).
NormalPair Normals(uint64_t key, uint64_t pair) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const Philox4 bits =
      Philox(key, {{static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), 0, 0}});
  const uint64_t first = bits.word[0] | static_cast<uint64_t>(bits.word[1]) << 32;
  const uint64_t second = bits.word[2] | static_cast<uint64_t>(bits.word[3]) << 32;
  const double u1 = static_cast<double>((first >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double u2 = static_cast<double>(second >> 11) * 0x1p-53;       // [0, 1)
  const double radius = std::sqrt(-2.0 * std::log(u1));
  return {radius * std::cos(kTwoPi * u2), radius * std::sin(kTwoPi * u2)};
}

// Calls store(i, value) for elements [begin, end).
template <class Store>
void Generate(const FillNormalArgs& a, int64_t begin, int64_t end, const Store& store) {
  NormalPair pair{};
  int64_t drawn = -1;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t index = a.first_index + a.numbers.At(i);
    if (index / 2 != drawn) {
      drawn = index / 2;
      pair = Normals(a.key, static_cast<uint64_t>(drawn));
    }
    store(i, a.std * (index % 2 == 0 ? pair.even : pair.odd));
  }
}

// Generates values of a 16-bit type, rounded first to f32 and then to the type.
template <class Half>
void GenerateHalves(const FillNormalArgs& a, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 1024;
  std::array<float, kChunk> chunk;
  Half* const out = a.out.Data<Half>();
  for (int64_t at = begin; at < end;) {
    const int64_t stop = at + std::min({end - at, kChunk, a.places.LeftInRun(at)});
    Generate(a, at, stop, [&](int64_t i, double x) {
      chunk[static_cast<size_t>(i - at)] = static_cast<float>(x);
    });
    ConvertRange(out + a.places.At(at), chunk.data(), stop - at);
    at = stop;
  }
}

}  // namespace

void CpuRandom::FillNormal(Stream& /*stream*/, const FillNormalArgs& a) const {
  CHECK_GE(a.first_index, 0);
  const int64_t count = a.places.CountIn(a.out.NumElements());
  pool_->ForRanges(count, kElementGrain / 16, [&](int64_t begin, int64_t end) {
    ForFloatType(a.out.dtype, "FillNormal", [&](auto zero) {
      using T = decltype(zero);
      if constexpr (SizeOf(DTypeOf<T>()) == 2) {
        GenerateHalves<T>(a, begin, end);
      } else {
        T* const out = a.out.Data<T>();
        Generate(a, begin, end,
                 [&](int64_t i, double x) { out[a.places.At(i)] = static_cast<T>(x); });
      }
    });
  });
}

}  // namespace mt::kernels::cpu
