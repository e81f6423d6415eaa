// Memory of a GPU that other processes' GPUs write, handed over by file descriptors. A name is
// "fd1 ADDRESS NUMBER TAKEN OFFSET REST": where and under which number the descriptor is to be had
// (common/base/descriptor_server.h), the size of the whole, the place in it and what follows it.
//
// The driver must know such descriptors, and processes must share a network namespace and a user.
// Legacy interprocess handles (cudaIpc*) are not used: they wanted more of the containers, and a
// mapping was void once its exporter had gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <cuda.h>

#include "common/base/descriptor_server.h"
#include "common/base/mutex.h"
#include "kernels/core/device.h"
#include "kernels/cuda/device/mapped_memory.h"

namespace mt::kernels::cuda {

class CudaPeerMemory final : public PeerMemory {
 public:
  // The GPU must be current for the calling thread.
  explicit CudaPeerMemory(int ordinal);

  // Memory of the kind kShared, uninitialised; nullptr where the driver has none, of which Export
  // then says why. Throws DeviceMemoryError if there is no room.
  std::unique_ptr<DeviceBuffer> Allocate(int64_t bytes) LOCKS_EXCLUDED(mu_);
  // What Allocate takes of the GPU.
  int64_t BytesTaken(int64_t bytes) const;

  bool CanReach(const std::string& uuid) override;
  std::string Export(void* data, std::string* why_not) override LOCKS_EXCLUDED(mu_);
  std::unique_ptr<DeviceBuffer> Import(const std::string& name, std::string* why_not) override
      LOCKS_EXCLUDED(import_mu_);

 private:
  class Buffer;
  class Mapping;
  struct Name;
  struct Exportable {
    const MappedMemory* memory = nullptr;
    int64_t bytes = 0;             // of the buffer, without what rounding adds
    std::optional<uint64_t> id{};  // once exported
  };
  using Key = std::pair<std::string, uint64_t>;  // a server's address, a number

  // The server's number of an allocation; nullopt and the reason.
  std::optional<uint64_t> IdOf(Exportable* exportable, std::string* why_not)
      EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<MappedMemory> MapNamed(const Name& name, std::string* why_not)
      EXCLUSIVE_LOCKS_REQUIRED(import_mu_);
  // A buffer ends: nobody obtains its memory any more.
  void Forget(const MappedMemory& memory) LOCKS_EXCLUDED(mu_);

  const int ordinal_;
  CUmemAllocationProp properties_{};
  int64_t granularity_ = 1;
  base::Mutex mu_;
  std::string why_none_ GUARDED_BY(mu_);  // why the driver has no memory to share; "": it may
  std::map<const std::byte*, Exportable> exportable_ GUARDED_BY(mu_);  // by their beginning
  std::unique_ptr<base::DescriptorServer> server_ GUARDED_BY(mu_);     // from the first export on
  base::Mutex import_mu_;
  std::map<Key, std::weak_ptr<MappedMemory>> imported_ GUARDED_BY(import_mu_);
};

}  // namespace mt::kernels::cuda
