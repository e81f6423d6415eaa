// Thin owners of CUDA's streams, events and memory. Streams are non-blocking, so none is ordered
// behind the legacy default stream; events are created without timing, which makes them cheaper.
// Record is in recording.cc.
#include "kernels/cuda/device/cuda_device.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/mark_ring.h"
#include "kernels/cuda/device/peer_memory.h"
#include "kernels/cuda/device/span_clock.h"

namespace mt::kernels::cuda {
namespace {

class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer(void* data, int64_t bytes, MemoryKind kind)
      : data_(data), bytes_(bytes), kind_(kind) {}
  // A failure here means that the context is already destroyed, and the memory with it.
  ~CudaBuffer() override {
    if (kind_ == MemoryKind::kPinnedHost) {
      cudaFreeHost(data_);
    } else {
      cudaFree(data_);
    }
  }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  void* const data_;
  const int64_t bytes_;
  const MemoryKind kind_;
};

class CudaEvent final : public Event {
 public:
  // A host that waits gives its core away.
  CudaEvent() {
    CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void Record(Stream& stream) override { CUDA_CHECK(cudaEventRecord(event_, Raw(stream))); }
  void Synchronize() override { CUDA_CHECK(cudaEventSynchronize(event_)); }
  bool IsDone() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    if (status != cudaSuccess) ThrowCudaError(status, "cudaEventQuery");
    return true;
  }
  cudaEvent_t raw() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

void BindDevice(int ordinal) {
  thread_local int bound = -1;
  if (bound == ordinal) return;
  CUDA_CHECK(cudaSetDevice(ordinal));
  bound = ordinal;
}

CudaStream::CudaStream(int ordinal, StreamPriority priority) : ordinal_(ordinal) {
  int least = 0, greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                          priority == StreamPriority::kHigh ? greatest : least));
  CUDA_CHECK(cudaMalloc(&scratch_, static_cast<size_t>(kStreamScratchBytes)));
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(stream_);
  cudaFree(scratch_);
  cudaStreamDestroy(stream_);
}

void CudaStream::Wait(Event& event) {
  CUDA_CHECK(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).raw(), 0));
}

void CudaStream::Synchronize() { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

void CudaStream::WriteValue(uint32_t* at, uint32_t value) {
  BindDevice(ordinal_);
  const CUresult written = Driver().stream_write_value(stream_, reinterpret_cast<CUdeviceptr>(at),
                                                       value, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (written != CUDA_SUCCESS) {
    throw DeviceError(fmt::format("cuStreamWriteValue32: error {}", static_cast<int>(written)));
  }
}

void CudaStream::WaitValue(uint32_t* at, uint32_t value) {
  BindDevice(ordinal_);
  const CUresult waiting = Driver().stream_wait_value(stream_, reinterpret_cast<CUdeviceptr>(at),
                                                      value, CU_STREAM_WAIT_VALUE_GEQ);
  if (waiting != CUDA_SUCCESS) {
    throw DeviceError(fmt::format("cuStreamWaitValue32: error {}", static_cast<int>(waiting)));
  }
}

std::string UuidOf(int ordinal) {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return text;
}

CudaDevice::CudaDevice(const DeviceLimits& limits) : limits_(limits) {
  BindDevice(limits_.ordinal);
  peers_ = std::make_unique<CudaPeerMemory>(limits_.ordinal);
}

CudaDevice::~CudaDevice() = default;

PeerMemory* CudaDevice::peers() { return peers_.get(); }

std::string CudaDevice::Describe() const {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, limits_.ordinal));
  return fmt::format("cuda {}, {}, sm_{}{}, {} SMs, {:.1f} GiB", limits_.ordinal, properties.name,
                     limits_.major, limits_.minor, limits_.num_sms,
                     static_cast<double>(properties.totalGlobalMem) / 0x1p30);
}

std::string CudaDevice::Uuid() const { return UuidOf(limits_.ordinal); }

std::optional<DeviceMemory> CudaDevice::Memory() {
  BindDevice(limits_.ordinal);
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return DeviceMemory{.free_bytes = static_cast<int64_t>(free),
                      .total_bytes = static_cast<int64_t>(total)};
}

int64_t CudaDevice::BytesTaken(int64_t bytes, MemoryKind kind) const {
  return kind == MemoryKind::kShared ? peers_->BytesTaken(bytes) : bytes;
}

std::unique_ptr<DeviceBuffer> CudaDevice::Allocate(int64_t bytes, MemoryKind kind) {
  CHECK_GE(bytes, 0);
  BindDevice(limits_.ordinal);
  if (kind == MemoryKind::kShared) {
    if (auto shared = peers_->Allocate(bytes)) return shared;
  }
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  const cudaError_t status = kind == MemoryKind::kPinnedHost
                                 ? cudaHostAlloc(&data, size, cudaHostAllocPortable)
                                 : cudaMalloc(&data, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // running out of memory is not sticky
    ThrowNoRoom(limits_.ordinal, bytes);
  }
  if (status != cudaSuccess) ThrowCudaError(status, "allocation");
  return std::make_unique<CudaBuffer>(data, bytes, kind);
}

std::unique_ptr<Stream> CudaDevice::CreateStream(StreamPriority priority) {
  BindDevice(limits_.ordinal);
  return std::make_unique<CudaStream>(limits_.ordinal, priority);
}

std::unique_ptr<Event> CudaDevice::CreateEvent() {
  BindDevice(limits_.ordinal);
  return std::make_unique<CudaEvent>();
}

std::unique_ptr<MarkRing> CudaDevice::CreateMarkRing(int64_t capacity,
                                                     const base::Clock* /*clock*/) {
  BindDevice(limits_.ordinal);
  return CudaMarkRing::Create(*this, capacity);
}

std::unique_ptr<SpanClock> CudaDevice::CreateSpanClock(int64_t capacity,
                                                       const base::Clock* /*clock*/) {
  BindDevice(limits_.ordinal);
  return std::make_unique<CudaSpanClock>(capacity);
}

void CudaDevice::Copy(Stream& stream, void* to, const void* from, int64_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, Raw(stream)));
}

void CudaDevice::Zero(Stream& stream, void* to, int64_t bytes) {
  CUDA_CHECK(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), Raw(stream)));
}

}  // namespace mt::kernels::cuda
