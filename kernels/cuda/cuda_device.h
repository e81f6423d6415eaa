// One GPU as the engine sees it: memory, streams, events, copies. Calls enqueue and return.
// Ownership: buffers, streams and events free themselves and must go before the CudaDevice.
// Threading: as kernels/core/device.h says; whatever enqueues binds the calling thread to the
// stream's GPU first, so threads need no set-up. Errors are DeviceError.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/core/device.h"

namespace mt::kernels::cuda {

// What launches need to know of the GPU; read once.
struct DeviceLimits {
  int ordinal = 0;
  int num_sms = 0;
  int major = 0, minor = 0;  // compute capability
  int shared_bytes = 0;      // a block's shared memory at most
};

// Scratch that belongs to a stream, for two-stage sums of ops whose contract has no workspace. What
// an op leaves there is read by a kernel of the same call, so the stream's order protects it.
inline constexpr int64_t kStreamScratchBytes = int64_t{4} << 20;

// Makes GPU `ordinal` the calling thread's; costs nothing where it is already.
void BindDevice(int ordinal);

class CudaStream final : public Stream {
 public:
  CudaStream(int ordinal, StreamPriority priority);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void Wait(Event& event) override;
  void Synchronize() override;
  cudaStream_t raw() const { return stream_; }
  int ordinal() const { return ordinal_; }
  void* scratch() const { return scratch_; }

 private:
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

// The stream of a call to this backend, whose GPU is then the calling thread's.
inline const CudaStream& CudaStreamOf(const Stream& stream) {
  const auto& out = static_cast<const CudaStream&>(stream);
  BindDevice(out.ordinal());
  return out;
}
inline cudaStream_t Raw(const Stream& stream) { return CudaStreamOf(stream).raw(); }

// The UUID of a GPU: "GPU-" and its bytes in hex, in groups of 4, 2, 2, 2 and 6.
std::string UuidOf(int ordinal);

class CudaDevice final : public Device {
 public:
  // `limits` of a device that exists; binds the calling thread to it.
  explicit CudaDevice(const DeviceLimits& limits);

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  // "cuda 0, NVIDIA H200, sm_90, 132 SMs, 139.8 GiB"
  std::string Describe() const override;
  std::string Uuid() const override;
  std::optional<DeviceMemory> Memory() override;
  // Memory is not initialised. Throws DeviceError when there is none, with the bytes free.
  std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> CreateStream(StreamPriority priority) override;
  std::unique_ptr<Event> CreateEvent() override;
  // The clock is the GPU's.
  std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) override;
  // A CUDA graph, captured in thread-local mode.
  std::unique_ptr<Recording> Record(Stream& stream, const std::function<void()>& calls,
                                    std::string* why_not) override;
  void Copy(Stream& stream, void* to, const void* from, int64_t bytes) override;
  void Zero(Stream& stream, void* to, int64_t bytes) override;
  const DeviceLimits& limits() const { return limits_; }

 private:
  const DeviceLimits limits_;
};

}  // namespace mt::kernels::cuda
