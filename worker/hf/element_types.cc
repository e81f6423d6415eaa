// The conversions are those of the CPU reference, so that what is exported in 16 bits are the
// weights that training computes with.
#include "worker/hf/element_types.h"

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

template <class From, class To>
void Convert(const std::byte* in, std::byte* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto wide = kernels::cpu::Widen(LoadAt<From>(in, i));
    To narrow;
    if constexpr (std::is_same_v<To, double>) {
      narrow = static_cast<double>(wide);
    } else {
      kernels::cpu::Narrow(static_cast<float>(wide), &narrow);
    }
    std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &narrow, sizeof(To));
  }
}

template <class From>
void ConvertFrom(const std::byte* in, std::string_view to, std::byte* out, int64_t count) {
  if (to == "F32") return Convert<From, float>(in, out, count);
  if (to == "F64") return Convert<From, double>(in, out, count);
  if (to == "BF16") return Convert<From, Bf16>(in, out, count);
  CHECK(to == "F16") << "no floating type: " << to;
  Convert<From, F16>(in, out, count);
}

}  // namespace

bool IsFloatType(std::string_view dtype) { return !TorchName(dtype).empty(); }

void ConvertElements(std::string_view from, const std::byte* in, std::string_view to,
                     std::byte* out, int64_t count) {
  if (from == "F32") return ConvertFrom<float>(in, to, out, count);
  if (from == "F64") return ConvertFrom<double>(in, to, out, count);
  if (from == "BF16") return ConvertFrom<Bf16>(in, to, out, count);
  CHECK(from == "F16") << "no floating type: " << from;
  ConvertFrom<F16>(in, to, out, count);
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
