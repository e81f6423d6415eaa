// Helpers for tests of 16-bit storage: pairs of equal tensors, one 16-bit and one f32, and the
// check that an op on 16-bit tensors writes what the f32 op writes for the same values, rounded
// once.
#pragma once

#include <cstring>

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {

using HalfTypes = testing::Types<Bf16, F16>;

template <class H>
Array<float> Widened(const Array<H>& half) {
  Array<float> out(half.shape());
  for (int64_t i = 0; i < half.size(); ++i) out[i] = Widen(half[i]);
  return out;
}

// The same values twice. Contents are garbage, not the same, unless made by a Uniform.
template <class H>
struct Pair {
  explicit Pair(Shape shape) : half(shape, ValueOf<H>(kNan)), wide(shape, 12345.0F) {}
  Pair(Uniform* random, Shape shape, double scale = 1)
      : half(random->Make<H>(shape, scale)), wide(Widened(half)) {}
  // The f32 values again from the 16-bit ones: an output becomes an input.
  void Refresh() { wide = Widened(half); }

  Array<H> half;
  Array<float> wide;
};

// Every element of half is the f32 one rounded to nearest even.
template <class H>
void ExpectRounded(const Pair<H>& pair, const std::string& what) {
  for (int64_t i = 0; i < pair.half.size(); ++i) {
    ASSERT_EQ(pair.half[i].bits, ValueOf<H>(double{pair.wide[i]}).bits)
        << what << " element " << i << " of " << pair.wide[i];
  }
}

// Bit for bit, -0 and NaN included.
inline void ExpectSame(const Array<float>& half, const Array<float>& wide,
                       const std::string& what) {
  ASSERT_EQ(half.size(), wide.size());
  for (int64_t i = 0; i < half.size(); ++i) {
    ASSERT_EQ(std::memcmp(&half.data()[i], &wide.data()[i], sizeof(float)), 0)
        << what << " element " << i << ": " << half[i] << " and " << wide[i];
  }
}

}  // namespace mt::kernels::cpu
