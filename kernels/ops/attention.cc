// The ALiBi slopes (Press et al. 2022, get_slopes), which both backends read as a tensor: computed
// here once, on the host, in fp64. And the refusal of backends that do not decode.
#include "kernels/ops/attention.h"

#include <bit>
#include <cmath>

namespace mt::kernels {
namespace {

double Slope(int64_t heads, int64_t head) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  if (head < below) {
    return std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(below));
  }
  // Elements 0, 2, 4, ... of the slopes for 2 * below heads.
  return std::exp2(-4.0 * static_cast<double>(2 * (head - below) + 1) / static_cast<double>(below));
}

}  // namespace

void FillAlibiSlopes(int64_t heads, int64_t first_head, const Tensor& slopes) {
  const int64_t count = slopes.NumElements();
  CHECK(first_head >= 0 && first_head + count <= heads)
      << first_head << "+" << count << " of " << heads;
  for (int64_t i = 0; i < count; ++i) {
    const double slope = Slope(heads, first_head + i);
    if (slopes.dtype == DType::kF64) {
      slopes.Data<double>()[i] = slope;
    } else {
      slopes.Data<float>()[i] = static_cast<float>(slope);
    }
  }
}

int64_t AttentionOps::DecodeWorkspaceBytes(const AttentionDecodeArgs& /*args*/) const {
  throw DeviceError("this device does not decode: attention over a cache is not built for it");
}

void AttentionOps::Decode(Stream& /*stream*/, const AttentionDecodeArgs& args) const {
  (void)DecodeWorkspaceBytes(args);
}

void AttentionOps::StoreKeys(Stream& /*stream*/, const AttentionDecodeArgs& args) const {
  (void)DecodeWorkspaceBytes(args);
}

}  // namespace mt::kernels
