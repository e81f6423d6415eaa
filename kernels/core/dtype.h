// Element types of tensors and buffers, their sizes and names, and the accumulator type that goes
// with each. Checkpoint manifests and tuning tables store the names, never the numeric values of
// the enum.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/check.h"

namespace mt::kernels {

enum class DType : uint8_t { kF32, kF64, kBf16, kF16, kI32, kI64, kU8 };

// Bytes per element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The persistent name: "f32", "f64", "bf16", "f16", "i32", "i64", "u8".
constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

// The accumulator type: the type of parameter gradients, optimizer state, statistics and sums for
// activations of `dtype`. f64 for f64, otherwise f32 (kernels/ops/README.md, rule 4).
constexpr DType AccumulatorOf(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

// The bits of 16-bit floats (bfloat16; IEEE 754 binary16). Storage only: arithmetic is done on the
// converted values.
struct Bf16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(Bf16, Bf16) = default;
};
struct F16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(F16, F16) = default;
};

template <class T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<Bf16>() {
  return DType::kBf16;
}
template <>
constexpr DType DTypeOf<F16>() {
  return DType::kF16;
}
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kU8;
}

}  // namespace mt::kernels
