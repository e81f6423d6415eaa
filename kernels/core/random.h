// The engine's only random generator: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers:
// as easy as 1, 2, 3", §3.3), a counter-based generator. The key names the purpose, the counter the
// position, so that every random number is a function of what it is used for and never of the
// parallel layout (docs/design/numerics.md#generator). Shared by CPU and CUDA code; all functions
// are pure.
#pragma once

#include <cmath>
#include <cstdint>

// The functions below are inlined by force: files built for newer instruction sets
// (kernels/cpu/loops) must not leave out-of-line copies that the linker could pick for the whole
// program.
#if defined(__CUDACC__)
#define MT_HOST_DEVICE __host__ __device__
#define MT_ALWAYS_INLINE __forceinline__
#else
#define MT_HOST_DEVICE
#define MT_ALWAYS_INLINE inline __attribute__((always_inline))
#endif

namespace mt::kernels {

// Four 32-bit words: a counter, or the 128 random bits made from it.
struct Philox4 {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53U, kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9U, kPhiloxWeyl1 = 0xBB67AE85U;

// Returns the 128 random bits of one counter. `key` is an XXH3 hash of the purpose's name;
// `counter` is the position within it.
MT_HOST_DEVICE MT_ALWAYS_INLINE Philox4 Philox(uint64_t key, Philox4 counter) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * counter.word[2];
    counter = {{static_cast<uint32_t>(p1 >> 32) ^ counter.word[1] ^ k0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.word[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return counter;
}

// Returns element j (0-7) of a call as 16 bits: word j / 2, low half first.
MT_HOST_DEVICE MT_ALWAYS_INLINE uint32_t Bits16(const Philox4& bits, int j) {
  return (bits.word[j / 2] >> (16 * (j % 2))) & 0xFFFFU;
}

// Dropout with probability threshold / 65536: an element is kept if its 16 random bits are at or
// above the threshold.
struct DropoutRate {
  uint32_t threshold = 0;  // round(65536 p), below 65536; 0: no dropout

  MT_HOST_DEVICE MT_ALWAYS_INLINE bool Keep(uint32_t bits16) const { return bits16 >= threshold; }
  // The factor of kept values, 1 / (1 - p), computed in fp64; the caller rounds it to its compute
  // type.
  MT_HOST_DEVICE MT_ALWAYS_INLINE double Scale() const {
    return 65536.0 / (65536.0 - static_cast<double>(threshold));
  }
  MT_HOST_DEVICE MT_ALWAYS_INLINE bool active() const { return threshold != 0; }
};

// `p` in [0, 1), as model.hidden_dropout and model.attention_dropout give it.
inline DropoutRate MakeDropoutRate(double p) {
  return {static_cast<uint32_t>(std::lround(65536.0 * p))};
}

// Counter of hidden dropout for the eight channels that contain `channel`: (channel / 8, position,
// sample low word, sample high word).
MT_HOST_DEVICE MT_ALWAYS_INLINE Philox4 HiddenDropoutCounter(int64_t channel, int32_t position,
                                                             int64_t sample) {
  return {{static_cast<uint32_t>(channel / 8), static_cast<uint32_t>(position),
           static_cast<uint32_t>(sample),
           static_cast<uint32_t>(static_cast<uint64_t>(sample) >> 32)}};
}

// Counter of attention dropout for the eight keys that contain `key_position`: (key position / 8,
// query position, sample low word, global head + 2^16 (sample >> 32)).
MT_HOST_DEVICE MT_ALWAYS_INLINE Philox4 AttentionDropoutCounter(int64_t key_position,
                                                                int32_t query_position,
                                                                int64_t sample,
                                                                int32_t global_head) {
  const uint64_t high = static_cast<uint64_t>(sample) >> 32;
  return {{static_cast<uint32_t>(key_position / 8), static_cast<uint32_t>(query_position),
           static_cast<uint32_t>(sample),
           static_cast<uint32_t>(global_head) + static_cast<uint32_t>(high << 16)}};
}

}  // namespace mt::kernels
