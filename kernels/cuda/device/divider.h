// Division by a number that is known at launch, as a multiplication and a shift: the GPU's own
// integer division takes some 20 instructions in 32 bits and over 100 in 64 (Granlund & Montgomery
// 1994, "Division by invariant integers using multiplication", §4).
#pragma once

#include <bit>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/core/random.h"

namespace mt::kernels::cuda {

// Exact for dividends and divisors below 2^31; made on the host and passed to a kernel by value.
class Divider {
 public:
  Divider() = default;
  explicit Divider(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    CHECK(divisor > 0 && divisor < int64_t{1} << 31) << divisor;
    if (divisor == 1) return;
    const int bits = std::bit_width(divisor_ - 1);  // ceil(log2)
    shift_ = static_cast<uint32_t>(bits - 1);
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << (31 + bits)) + divisor_ - 1) / divisor_);
  }

  MT_HOST_DEVICE MT_ALWAYS_INLINE uint32_t divisor() const { return divisor_; }
  MT_HOST_DEVICE MT_ALWAYS_INLINE uint32_t Quotient(uint32_t x) const {
    if (divisor_ == 1) return x;
    return static_cast<uint32_t>(uint64_t{x} * multiplier_ >> 32) >> shift_;
  }
  // Returns the quotient and stores the remainder in *rest.
  MT_HOST_DEVICE MT_ALWAYS_INLINE uint32_t Quotient(uint32_t x, uint32_t* rest) const {
    const uint32_t quotient = Quotient(x);
    *rest = x - quotient * divisor_;
    return quotient;
  }

 private:
  uint32_t divisor_ = 1, multiplier_ = 0, shift_ = 0;
};

// Aborts (CHECK) if `n` items cannot be counted in the 31 bits that kernels use.
inline void CheckCountable(int64_t n) { CHECK_LT(n, int64_t{1} << 31) << "elements in one call"; }

}  // namespace mt::kernels::cuda
