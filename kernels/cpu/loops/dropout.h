// Dropout multipliers of a row of channels (or key positions), several Philox calls at a time so
// that the rounds vectorise. The bits are those of the scalar form in kernels/core/random.h.
// Included only by the files of this folder.
#pragma once

#include <cstdint>

#include "kernels/core/random.h"

namespace mt::kernels::cpu {

inline constexpr int kPhiloxBatch = 16;  // Philox calls at a time
inline constexpr int kDropoutChunk = 8 * kPhiloxBatch;

// Makes Philox calls with counters (first_word0 + i, rest.word[1..3]), i in [0, kPhiloxBatch); word
// w of call i goes to out[w][i].
MT_ALWAYS_INLINE void PhiloxBatch(uint64_t key, uint32_t first_word0, const Philox4& rest,
                                  uint32_t out[4][kPhiloxBatch]) {
  for (int i = 0; i < kPhiloxBatch; ++i) {
    out[0][i] = first_word0 + static_cast<uint32_t>(i);
    out[1][i] = rest.word[1];
    out[2][i] = rest.word[2];
    out[3][i] = rest.word[3];
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kPhiloxBatch; ++i) {
      const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * out[0][i];
      const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * out[2][i];
      out[0][i] = static_cast<uint32_t>(p1 >> 32) ^ out[1][i] ^ k0;
      out[1][i] = static_cast<uint32_t>(p1);
      out[2][i] = static_cast<uint32_t>(p0 >> 32) ^ out[3][i] ^ k1;
      out[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
}

// multiplier[c] = 0 where channel c is dropped, else `scale`, for the kDropoutChunk channels that
// begin with that of `counter` (a multiple of 8).
template <class T>
MT_ALWAYS_INLINE void DropoutChunk(uint64_t key, const Philox4& counter, uint32_t threshold,
                                   T scale, T* multiplier) {
  uint32_t bits[4][kPhiloxBatch];
  PhiloxBatch(key, counter.word[0], counter, bits);
  for (int i = 0; i < kPhiloxBatch; ++i) {
    for (int w = 0; w < 4; ++w) {
      multiplier[8 * i + 2 * w] = (bits[w][i] & 0xFFFFU) >= threshold ? scale : T{0};
      multiplier[8 * i + 2 * w + 1] = (bits[w][i] >> 16) >= threshold ? scale : T{0};
    }
  }
}

// Hidden dropout of rows in [s, b] order; threshold 0: none.
struct HiddenDropout {
  uint32_t threshold = 0;
  double scale = 1;
  uint64_t key = 0;
  const int64_t* samples = nullptr;    // [b]
  const int32_t* positions = nullptr;  // [s]
};

}  // namespace mt::kernels::cpu
