// Integer arithmetic on shapes and sizes that aborts instead of truncating.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

#include "common/base/check.h"

namespace mt::base {

// a / b, where b must divide a: the job spec was validated, so a shape that does not divide is a
// bug of the caller.
constexpr int64_t DivExact(int64_t a, int64_t b) {
  CHECK(b != 0 && a % b == 0) << a << " is not a multiple of " << b;
  return a / b;
}

// a / b rounded up, for a >= 0 and b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The smallest multiple of `unit` that is at least a, for a >= 0.
constexpr int64_t RoundUp(int64_t a, int64_t unit) { return CeilDiv(a, unit) * unit; }

// Narrowing conversion that aborts where the value does not fit.
template <std::integral To, std::integral From>
constexpr To CheckedCast(From value) {
  const To out = static_cast<To>(value);
  CHECK(static_cast<From>(out) == value && (out < To{}) == (value < From{}))
      << "narrowing of " << value;
  return out;
}

}  // namespace mt::base
