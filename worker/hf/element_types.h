// Elements of safetensors files from one floating type to another: rounded once, to nearest, ties
// to even. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mt::hf {

// Whether it is one of F64, F32, BF16, F16, which weights have.
bool IsFloatType(std::string_view dtype);

// Converts `count` elements; both types are floating types (CHECK), and the ranges do not overlap.
void ConvertElements(std::string_view from, const std::byte* in, std::string_view to,
                     std::byte* out, int64_t count);
// The same of 1 + each element; the sum is not rounded before.
void ConvertOnePlus(std::string_view from, const std::byte* in, std::string_view to, std::byte* out,
                    int64_t count);

// torch's name of a type, "float32"; and the type of a name; empty where there is none.
std::string_view TorchName(std::string_view dtype);
std::string_view TypeOfTorchName(std::string_view name);

}  // namespace mt::hf
