// A name is the handle of a whole allocation, the place in it and what follows, as bytes.
#include "kernels/cuda/device/peer_memory.h"

#include <cstring>

#include <cuda.h>

#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/driver.h"

namespace mt::kernels::cuda {
namespace {

struct Name {
  cudaIpcMemHandle_t handle{};
  int64_t offset = 0;
  int64_t rest = 0;
};

// Reads an error that is no fault of the device, so that nobody else meets it.
std::string TakeError(const char* call, cudaError_t status) {
  cudaGetLastError();
  return std::string(call) + ": " + cudaGetErrorString(status);
}

class Mapping final : public DeviceBuffer {
 public:
  Mapping(void* base, const Name& name) : base_(base), name_(name) {}
  ~Mapping() override { cudaIpcCloseMemHandle(base_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* data() override { return static_cast<std::byte*>(base_) + name_.offset; }
  int64_t bytes() const override { return name_.rest; }

 private:
  void* const base_;
  const Name name_;
};

class CudaPeerMemory final : public PeerMemory {
 public:
  explicit CudaPeerMemory(int ordinal) : ordinal_(ordinal) {}

  bool CanReach(const std::string& uuid) override {
    BindDevice(ordinal_);
    int count = 0;
    CUDA_CHECK(cudaGetDeviceCount(&count));
    for (int other = 0; other < count; ++other) {
      if (UuidOf(other) != uuid) continue;
      if (other == ordinal_) return true;  // of another process; CUDA says that it is no peer
      int can = 0;
      CUDA_CHECK(cudaDeviceCanAccessPeer(&can, ordinal_, other));
      return can != 0;
    }
    return false;
  }

  std::string Export(void* data, std::string* why_not) override {
    BindDevice(ordinal_);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const auto at = reinterpret_cast<CUdeviceptr>(data);
    const CUresult found = Driver().mem_get_address_range(&base, &bytes, at);
    if (found != CUDA_SUCCESS) {
      *why_not = "cuMemGetAddressRange: error " + std::to_string(found);
      return {};
    }
    Name name;
    const cudaError_t made = cudaIpcGetMemHandle(&name.handle, reinterpret_cast<void*>(base));
    if (made != cudaSuccess) {
      *why_not = TakeError("cudaIpcGetMemHandle", made);
      return {};
    }
    name.offset = static_cast<int64_t>(at - base);
    name.rest = static_cast<int64_t>(bytes) - name.offset;
    return {reinterpret_cast<const char*>(&name), sizeof(name)};
  }

  std::unique_ptr<DeviceBuffer> Import(const std::string& text, std::string* why_not) override {
    BindDevice(ordinal_);
    Name name;
    if (text.size() != sizeof(name)) {
      *why_not = "the peer runs another version";
      return nullptr;
    }
    std::memcpy(&name, text.data(), sizeof(name));
    void* base = nullptr;
    const cudaError_t opened =
        cudaIpcOpenMemHandle(&base, name.handle, cudaIpcMemLazyEnablePeerAccess);
    if (opened != cudaSuccess) {
      *why_not = TakeError("cudaIpcOpenMemHandle", opened);
      return nullptr;
    }
    return std::make_unique<Mapping>(base, name);
  }

 private:
  const int ordinal_;
};

}  // namespace

std::unique_ptr<PeerMemory> MakePeerMemory(int ordinal) {
  return std::make_unique<CudaPeerMemory>(ordinal);
}

}  // namespace mt::kernels::cuda
