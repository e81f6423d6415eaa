// Sums are computed block by block in a small buffer, so that inputs stay in cache and the output
// may be one of the inputs.
#include "worker/comm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/base/check.h"
#include "worker/comm/bytes.h"

namespace mt::comm {
namespace {

using kernels::DType;

constexpr int64_t kBlockBytes = 8192;

// Wrapping sum; avoids the undefined behaviour of signed overflow.
template <class T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// The maximum; NaN if one operand is NaN, the left operand if they compare equal (+0, -0).
template <class T>
T Max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return a;
    if (b != b) return b;
  }
  return a < b ? b : a;
}

template <class T>
void CombineAs(void* into, const void* left, const void* right, int64_t count, ReduceOp op) {
  auto* out = static_cast<T*>(into);
  const auto* a = static_cast<const T*>(left);
  const auto* b = static_cast<const T*>(right);
  if (op == ReduceOp::kSum) {
    for (int64_t i = 0; i < count; ++i) out[i] = Sum(a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = Max(a[i], b[i]);
  }
}

float WidenBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t NarrowBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float WidenF16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide_exponent = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

uint16_t NarrowF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | ((bits >> 13) & 0x1FFU));
  }
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and above
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal, a multiple of 2^-24: adding 0.5 aligns the last bit, and
    // the addition rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000U));
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
void ReduceHalf(std::span<const void* const> inputs, void* out, int64_t count, ReduceOp op) {
  auto* result = static_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) {
    float total = Widen(static_cast<const uint16_t*>(inputs[0])[i]);
    for (size_t member = 1; member < inputs.size(); ++member) {
      const float value = Widen(static_cast<const uint16_t*>(inputs[member])[i]);
      total = op == ReduceOp::kSum ? total + value : Max(total, value);
    }
    result[i] = Narrow(total);
  }
}

}  // namespace

void Combine(void* into, const void* left, const void* right, int64_t count, ReduceType type) {
  switch (type.dtype) {
    case DType::kF32:
      return CombineAs<float>(into, left, right, count, type.op);
    case DType::kF64:
      return CombineAs<double>(into, left, right, count, type.op);
    case DType::kI32:
      return CombineAs<int32_t>(into, left, right, count, type.op);
    case DType::kI64:
      return CombineAs<int64_t>(into, left, right, count, type.op);
    case DType::kU8:
      return CombineAs<uint8_t>(into, left, right, count, type.op);
    case DType::kBf16:
    case DType::kF16:
      CHECK(false) << "16-bit types are summed by ReduceInOrder";
  }
}

void ReduceInOrder(std::span<const void* const> inputs, int owner, void* out, int64_t count,
                   ReduceType type) {
  if (type.dtype == DType::kBf16) {
    return ReduceHalf<WidenBf16, NarrowBf16>(inputs, out, count, type.op);
  }
  if (type.dtype == DType::kF16) {
    return ReduceHalf<WidenF16, NarrowF16>(inputs, out, count, type.op);
  }
  const size_t n = inputs.size();
  const auto own = static_cast<size_t>(owner);
  const int64_t element = kernels::SizeOf(type.dtype);
  alignas(64) std::array<std::byte, kBlockBytes> block;
  for (int64_t begin = 0; begin < count; begin += kBlockBytes / element) {
    const int64_t part = std::min(kBlockBytes / element, count - begin);
    const int64_t offset = begin * element;
    std::memcpy(block.data(), At(inputs[(own + 1) % n], offset),
                static_cast<size_t>(part * element));
    for (size_t hop = 2; hop <= n; ++hop) {
      Combine(block.data(), block.data(), At(inputs[(own + hop) % n], offset), part, type);
    }
    std::memcpy(At(out, offset), block.data(), static_cast<size_t>(part * element));
  }
}

void ReduceAllShards(std::span<const void* const> inputs, void* out, int64_t count,
                     ReduceType type) {
  const ShardCut cut{.count = count, .num_shards = static_cast<int>(inputs.size())};
  const int64_t element = kernels::SizeOf(type.dtype);
  std::vector<const void*> shard_inputs(inputs.size());
  for (int shard = 0; shard < cut.num_shards; ++shard) {
    const int64_t offset = cut.Begin(shard) * element;
    for (size_t i = 0; i < inputs.size(); ++i) shard_inputs[i] = At(inputs[i], offset);
    ReduceInOrder(shard_inputs, shard, At(out, offset), cut.CountOf(shard), type);
  }
}

}  // namespace mt::comm
