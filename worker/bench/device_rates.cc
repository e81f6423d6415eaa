// The table of stated rates, and a product that is tuned like the model's own before it is timed.
#include "worker/bench/device_rates.h"

#include <memory>
#include <vector>

#include "kernels/ops/tuning.h"
#include "kernels/replay/steady_time.h"

namespace mt::bench {
namespace {

using kernels::DType;
using kernels::Tensor;

struct StatedPeak {
  std::string_view name;  // substring of Device::Describe(); the first match counts
  double half_flops;
  double fp32_flops;
};
constexpr StatedPeak kStatedPeaks[] = {
    {"H100 PCIe", 756.5e12, 51e12}, {"H100 NVL", 835.5e12, 60e12}, {"H200 NVL", 835.5e12, 60e12},
    {"H100", 989.4e12, 67e12},      {"H200", 989.4e12, 67e12},     {"A100", 312e12, 19.5e12},
};

// Owns the buffers of one measurement.
class Matrices {
 public:
  Matrices(kernels::Backend& backend, kernels::Stream& stream)
      : backend_(backend), stream_(stream) {}

  void* Take(int64_t bytes) {
    buffers_.push_back(backend_.device().Allocate(bytes, kernels::MemoryKind::kDevice));
    return buffers_.back()->data();
  }
  Tensor Random(int64_t size, DType dtype) {
    const Tensor matrix{Take(size * size * kernels::SizeOf(dtype)), dtype, {size, size}};
    backend_.random().FillNormal(stream_, {.key = buffers_.size(), .std = 1, .out = matrix});
    return matrix;
  }

 private:
  kernels::Backend& backend_;
  kernels::Stream& stream_;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> buffers_;
};

StatusOr<double> ProductSeconds(kernels::Backend& backend, int64_t size, DType dtype,
                                double seconds) {
  const auto stream = backend.device().CreateStream(kernels::StreamPriority::kLow);
  Matrices matrices(backend, *stream);
  kernels::LinearForwardArgs args{.x = matrices.Random(size, dtype),
                                  .w = matrices.Random(size, dtype),
                                  .y = matrices.Random(size, dtype)};
  const int64_t workspace = backend.linear().Plan(args);
  args.workspace = {matrices.Take(workspace), workspace};
  kernels::TuningTable* const table = backend.tuning();
  if (table != nullptr) RETURN_IF_ERROR(table->Time(table->Missing()));
  return kernels::replay::MedianSeconds(backend.device(), *stream, 1, seconds,
                                        [&] { backend.linear().Forward(*stream, args); });
}

}  // namespace

double StatedPeakFlops(std::string_view device, DType dtype) {
  for (const StatedPeak& peak : kStatedPeaks) {
    if (device.find(peak.name) == std::string_view::npos) continue;
    if (dtype == DType::kBf16 || dtype == DType::kF16) return peak.half_flops;
    return dtype == DType::kF32 ? peak.fp32_flops : 0;
  }
  return 0;
}

StatusOr<MeasuredProduct> MeasureProduct(kernels::Backend& backend, double seconds) {
  const bool gpu = backend.device().kind() == kernels::DeviceKind::kCuda;
  MeasuredProduct out{.size = gpu ? 8192 : 1024, .dtype = gpu ? DType::kBf16 : DType::kF32};
  try {
    const auto size = static_cast<double>(out.size);
    ASSIGN_OR_RETURN(const double once, ProductSeconds(backend, out.size, out.dtype, seconds));
    out.flops = 2 * size * size * size / once;
  } catch (const kernels::DeviceMemoryError& error) {
    return base::Error(absl::StatusCode::kResourceExhausted, "product of {0} x {0}: {1}", out.size,
                       error.what());
  }
  return out;
}

}  // namespace mt::bench
