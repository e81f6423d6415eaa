// The conversions are those of the CPU reference, so that what is exported in 16 bits are the
// weights that training computes with. Where a value comes to its type by way of another one, it is
// rounded to odd on the way: cut off, the last bit set where something was. Such a value is between
// the same neighbours as the exact one in any type that has two bits less, so that only the last
// rounding counts.
#include "worker/hf/element_types.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "kernels/core/dtype.h"
#include "kernels/cpu/loops/half.h"

namespace mt::hf {
namespace {

using kernels::Bf16;
using kernels::F16;

constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
    {"F32", "float32"}, {"BF16", "bfloat16"}, {"F16", "float16"}, {"F64", "float64"}};

// Elements may lie at any address.
template <class T>
T LoadAt(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// `nearest`, rounded from an exact value that differs from it by `error`, as rounded to odd.
template <class T>
T Odd(T nearest, double error) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  if (error == 0 || !std::isfinite(nearest)) return nearest;
  auto bits = std::bit_cast<Bits>(nearest);
  // Zero is nearer to zero than what it was rounded from.
  const bool beyond = nearest != 0 && (nearest > 0) == (error < 0);
  if (beyond) --bits;
  if (nearest == 0) bits = std::bit_cast<Bits>(std::copysign(T{0}, static_cast<T>(error)));
  return std::bit_cast<T>(bits | 1U);
}

// What is rounded to 16 bits: a double as float.
float Wide(float value) { return value; }
float Wide(double value) {
  const auto nearest = static_cast<float>(value);
  return Odd(nearest, value - double{nearest});
}

// A value in the type that it is computed in, as a To.
template <class To, class Computed>
To RoundTo(Computed value) {
  if constexpr (sizeof(To) >= sizeof(float)) {
    return static_cast<To>(value);
  } else {
    To out;
    kernels::cpu::Narrow(Wide(value), &out);
    return out;
  }
}

struct Plain {
  template <class From, class To>
  static To Of(From value) {
    return RoundTo<To>(kernels::cpu::Widen(value));
  }
};

struct OnePlus {
  template <class From, class To>
  static To Of(From value) {
    const auto g = static_cast<double>(kernels::cpu::Widen(value));
    const double sum = 1 + g;
    if constexpr (std::is_same_v<To, double>) {
      return sum;
    } else {
      // What the sum lacks is a double itself.
      const double rest = sum - 1;
      return RoundTo<To>(Odd(sum, (1 - (sum - rest)) + (g - rest)));
    }
  }
};

template <class Op, class From, class To>
void Convert(const std::byte* in, std::byte* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const To narrow = Op::template Of<From, To>(LoadAt<From>(in, i));
    std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &narrow, sizeof(To));
  }
}

template <class Op, class From>
void ConvertFrom(const std::byte* in, std::string_view to, std::byte* out, int64_t count) {
  if (to == "F32") return Convert<Op, From, float>(in, out, count);
  if (to == "F64") return Convert<Op, From, double>(in, out, count);
  if (to == "BF16") return Convert<Op, From, Bf16>(in, out, count);
  CHECK(to == "F16") << "no floating type: " << to;
  Convert<Op, From, F16>(in, out, count);
}

template <class Op>
void ConvertAs(std::string_view from, const std::byte* in, std::string_view to, std::byte* out,
               int64_t count) {
  if (from == "F32") return ConvertFrom<Op, float>(in, to, out, count);
  if (from == "F64") return ConvertFrom<Op, double>(in, to, out, count);
  if (from == "BF16") return ConvertFrom<Op, Bf16>(in, to, out, count);
  CHECK(from == "F16") << "no floating type: " << from;
  ConvertFrom<Op, F16>(in, to, out, count);
}

}  // namespace

bool IsFloatType(std::string_view dtype) { return !TorchName(dtype).empty(); }

void ConvertElements(std::string_view from, const std::byte* in, std::string_view to,
                     std::byte* out, int64_t count) {
  ConvertAs<Plain>(from, in, to, out, count);
}

void ConvertOnePlus(std::string_view from, const std::byte* in, std::string_view to, std::byte* out,
                    int64_t count) {
  ConvertAs<OnePlus>(from, in, to, out, count);
}

std::string_view TorchName(std::string_view dtype) {
  for (const auto& [type, torch] : kTypes) {
    if (type == dtype) return torch;
  }
  return {};
}

std::string_view TypeOfTorchName(std::string_view name) {
  for (const auto& [type, torch] : kTypes) {
    if (torch == name) return type;
  }
  return {};
}

}  // namespace mt::hf
