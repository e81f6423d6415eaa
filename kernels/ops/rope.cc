// Frequencies of the rotation and the table of cosines and sines, computed once on the host in fp64
// so that every rank and backend rotates by the same numbers.
#include "kernels/ops/rope.h"

#include <cmath>
#include <numbers>

namespace mt::kernels {
namespace {

// apply_scaling of Llama 3.1's reference code (Dubey et al. 2024).
double Llama3Scaled(const RopeScaling& s, double frequency) {
  const double turns =
      static_cast<double>(s.original_positions) * frequency / (2 * std::numbers::pi);
  if (turns < s.low_freq_factor) return frequency / s.factor;
  if (turns > s.high_freq_factor) return frequency;
  const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

template <class T>
void FillRows(const RopeConfig& config, const Tensor& table) {
  const int64_t r = table.shape[1];
  for (int64_t pair = 0; pair < r / 2; ++pair) {
    const double frequency = RopeFrequency(config, pair);
    for (int64_t p = 0; p < table.shape[0]; ++p) {
      T* const row = table.Data<T>() + p * r;
      const double angle = static_cast<double>(p) * frequency;
      row[pair] = static_cast<T>(std::cos(angle));
      row[r / 2 + pair] = static_cast<T>(std::sin(angle));
    }
  }
}

}  // namespace

int64_t RotatedChannels(const RopeConfig& config) {
  return static_cast<int64_t>(static_cast<double>(config.head_dim) * config.percent) / 2 * 2;
}

double RopeFrequency(const RopeConfig& config, int64_t pair) {
  const double exponent =
      2 * static_cast<double>(pair) / static_cast<double>(RotatedChannels(config));
  const double frequency = 1 / std::pow(config.base, exponent);
  switch (config.scaling.kind) {
    case RopeScalingKind::kNone:
      return frequency;
    case RopeScalingKind::kLinear:
      return frequency / config.scaling.factor;
    case RopeScalingKind::kLlama3:
      return Llama3Scaled(config.scaling, frequency);
  }
  return frequency;
}

void FillRopeTable(const RopeConfig& config, const Tensor& table) {
  CHECK_EQ(table.shape.rank(), 2);
  CHECK_EQ(table.shape[1], RotatedChannels(config));
  if (table.dtype == DType::kF64) {
    FillRows<double>(config, table);
  } else {
    FillRows<float>(config, table);
  }
}

}  // namespace mt::kernels
