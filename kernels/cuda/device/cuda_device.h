// One GPU as a Device: memory, streams, events, copies. Calls enqueue and return.
// Ownership: buffers, streams and events free themselves and must be destroyed before the
// CudaDevice.
// Threading: as in kernels/core/device.h. Every call that enqueues first makes the stream's GPU
// current for the calling thread, so threads need no set-up.
// Errors: DeviceError.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/core/device.h"

namespace mt::kernels::cuda {

class CudaPeerMemory;

// Properties of the GPU that launches depend on; read once.
struct DeviceLimits {
  int ordinal = 0;
  int num_sms = 0;
  int major = 0, minor = 0;  // compute capability
  int shared_bytes = 0;      // maximum shared memory of a thread block, in bytes
};

// Bytes of scratch memory that belong to each stream, for the two-stage sums of ops whose contract
// has no workspace. An op's partial sums are read by a later kernel of the same call, so stream
// order protects them.
inline constexpr int64_t kStreamScratchBytes = int64_t{4} << 20;

// Makes GPU `ordinal` current for the calling thread (cudaSetDevice); free of cost if it is
// already.
void BindDevice(int ordinal);

class CudaStream final : public Stream {
 public:
  CudaStream(int ordinal, StreamPriority priority);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void Wait(Event& event) override;
  void Synchronize() override;
  void WriteValue(uint32_t* at, uint32_t value) override;
  void WaitValue(uint32_t* at, uint32_t value) override;
  void* native() override { return stream_; }
  cudaStream_t raw() const { return stream_; }
  int ordinal() const { return ordinal_; }
  void* scratch() const { return scratch_; }

 private:
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

// Returns the CUDA stream behind `stream` and makes its GPU current for the calling thread. The
// stream must be this backend's.
inline const CudaStream& CudaStreamOf(const Stream& stream) {
  const auto& out = static_cast<const CudaStream&>(stream);
  BindDevice(out.ordinal());
  return out;
}
inline cudaStream_t Raw(const Stream& stream) { return CudaStreamOf(stream).raw(); }

// Returns the UUID of a GPU as NVML prints it: "GPU-" and its bytes in hex, in groups of 4, 2, 2, 2
// and 6.
std::string UuidOf(int ordinal);

class CudaDevice final : public Device {
 public:
  // `limits` must be those of an existing GPU; makes it current for the calling thread.
  explicit CudaDevice(const DeviceLimits& limits);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  // "cuda 0, NVIDIA H200, sm_90, 132 SMs, 139.8 GiB"
  std::string Describe() const override;
  bool Enqueues() const override { return true; }
  void BindThread() override { BindDevice(limits_.ordinal); }
  PeerMemory* peers() override;
  std::string Uuid() const override;
  std::optional<DeviceMemory> Memory() override;
  int64_t BytesTaken(int64_t bytes, MemoryKind kind) const override;
  // The memory is not initialised. Throws DeviceMemoryError, with the free bytes in the message, if
  // there is none.
  std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> CreateStream(StreamPriority priority) override;
  std::unique_ptr<Event> CreateEvent() override;
  // Times are the GPU's; `clock` is not used.
  std::unique_ptr<MarkRing> CreateMarkRing(int64_t capacity, const base::Clock* clock) override;
  // Makes all events at once; `clock` is not used.
  std::unique_ptr<SpanClock> CreateSpanClock(int64_t capacity, const base::Clock* clock) override;
  // Captures a CUDA graph in thread-local mode; see recording.cc.
  std::unique_ptr<Recording> Record(Stream& stream, const std::function<void()>& calls,
                                    std::string* why_not) override;
  void Copy(Stream& stream, void* to, const void* from, int64_t bytes) override;
  void Zero(Stream& stream, void* to, int64_t bytes) override;
  const DeviceLimits& limits() const { return limits_; }

 private:
  const DeviceLimits limits_;
  std::unique_ptr<CudaPeerMemory> peers_;
};

}  // namespace mt::kernels::cuda
