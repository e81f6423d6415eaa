// The module's exported function and the backend that it makes, after checks of the GPU, its
// driver, cuDNN and cuBLASLt.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

#include <fmt/format.h>

#include "common/gpu/cuda_module.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/library_check.h"
#include "kernels/cuda/gemm/linear.h"
#include "kernels/cuda/module.h"

namespace mt::kernels::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const DeviceLimits& limits)
      : device_(limits),
        add_norm_(limits),
        rope_(limits),
        embedding_(limits),
        update_(limits),
        vector_(limits),
        tuning_(limits, &act_, &vector_),
        linear_(&act_, &vector_, &tuning_),
        attention_(limits) {}

  Device& device() override { return device_; }
  int64_t NumPlans() const override { return attention_.NumPlans(); }
  void RunPlanned() override {
    tuning_.RunPlanned();
    attention_.RunPlanned();
  }
  std::string AttentionKernels() const override { return attention_.Kernels(); }
  const EmbeddingOps& embedding() const override { return embedding_; }
  const AddNormOps& add_norm() const override { return add_norm_; }
  LinearOps& linear() override { return linear_; }
  const ActOps& act() const override { return act_; }
  const RopeOps& rope() const override { return rope_; }
  AttentionOps& attention() override { return attention_; }
  const LossOps& loss() const override { return loss_; }
  const UpdateOps& update() const override { return update_; }
  const VectorOps& vector() const override { return vector_; }
  const RandomOps& random() const override { return random_; }
  TuningTable* tuning() override { return &tuning_; }

 private:
  CudaDevice device_;
  const CudaAddNorm add_norm_;
  const CudaAct act_;
  const CudaRope rope_;
  const CudaEmbedding embedding_;
  const CudaLoss loss_;
  const CudaUpdate update_;
  const CudaVector vector_;
  const CudaRandom random_;
  CudaTuningTable tuning_;
  CudaLinear linear_;
  CudaAttention attention_;
};

int CountDevices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice) {
    throw DeviceError(fmt::format(
        "no usable GPU or driver on this host: cudaGetDeviceCount: {}; install a driver for CUDA "
        "{}.{} or newer, or train with placement.device: cpu",
        cudaGetErrorString(status), CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
  }
  if (status != cudaSuccess) ThrowCudaError(status, "cudaGetDeviceCount");
  return count;
}

// Returns the ordinal of the configured GPU; throws DeviceError if this process does not see it.
int OrdinalOf(const CudaConfig& config) {
  const int count = CountDevices();
  if (config.uuid.empty()) {
    if (config.device >= 0 && config.device < count) return config.device;
    throw DeviceError(fmt::format("no GPU {}: this process sees {}", config.device, count));
  }
  std::string seen;
  for (int device = 0; device < count; ++device) {
    const std::string uuid = UuidOf(device);
    if (uuid == config.uuid) return device;
    seen += (seen.empty() ? "" : ", ") + uuid;
  }
  throw DeviceError(
      fmt::format("no GPU {}: this process sees {} ({}); is it hidden by CUDA_VISIBLE_DEVICES, or "
                  "gone since the worker found it (nvidia-smi -L)?",
                  config.uuid, count, seen));
}

// Reads the GPU's properties; throws DeviceError with the fault and what to do about it.
DeviceLimits LimitsOf(const CudaConfig& config) {
  const int device = OrdinalOf(config);
  DeviceLimits limits{.ordinal = device};
  const auto read = [&](cudaDeviceAttr attribute, int* out) {
    CUDA_CHECK(cudaDeviceGetAttribute(out, attribute, device));
  };
  read(cudaDevAttrMultiProcessorCount, &limits.num_sms);
  read(cudaDevAttrComputeCapabilityMajor, &limits.major);
  read(cudaDevAttrComputeCapabilityMinor, &limits.minor);
  read(cudaDevAttrMaxSharedMemoryPerBlockOptin, &limits.shared_bytes);
  if (config.shared_bytes > 0)
    limits.shared_bytes = std::min(limits.shared_bytes, config.shared_bytes);
  const std::string fault = gpu::CapabilityFault(fmt::format("GPU {} ({})", device, UuidOf(device)),
                                                 limits.major, limits.minor);
  if (!fault.empty()) throw DeviceError(fault + ": use another GPU, or placement.device: cpu");
  return limits;
}

void CheckLibraries() {
  const std::string fault = gpu::LibraryFault(cudnnGetVersion(), cublasLtGetVersion());
  if (!fault.empty()) throw DeviceError(fault);
}

}  // namespace
}  // namespace mt::kernels::cuda

extern "C" __attribute__((visibility("default"))) mt::kernels::Backend* mt_cuda_make_backend(
    const char* version, const mt::kernels::cuda::CudaConfig& config,
    mt::kernels::cuda::BackendFault* fault) {
  using namespace mt::kernels::cuda;
  if (std::strcmp(version, MT_CUDA_MODULE_VERSION) != 0) {
    fault->text = fmt::format(
        "the program is of version \"{}\" and the module of \"{}\": install both "
        "from one build",
        version, MT_CUDA_MODULE_VERSION);
    return nullptr;
  }
  // Exceptions must not leave a C function.
  try {
    const DeviceLimits limits = LimitsOf(config);
    CheckLibraries();
    return std::make_unique<CudaBackend>(limits).release();
  } catch (const mt::kernels::DeviceMemoryError& failure) {
    *fault = {.text = failure.what(), .out_of_memory = true};
    return nullptr;
  } catch (const std::exception& failure) {
    fault->text = failure.what();
    return nullptr;
  }
}
