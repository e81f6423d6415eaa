// What is exported stays known by its addresses; what is imported, by where its descriptor came
// from, so that two names of one allocation share a mapping.
#include "kernels/cuda/device/peer_memory.h"

#include <fcntl.h>
#include <sstream>

#include <fmt/format.h>

#include "common/base/math.h"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/driver.h"

namespace mt::kernels::cuda {
namespace {

constexpr const char* kForm = "fd1";
constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

bool Has(CUdevice_attribute attribute, int ordinal) {
  int value = 0;
  return Driver().device_get_attribute(&value, attribute, ordinal) == CUDA_SUCCESS && value != 0;
}

}  // namespace

struct CudaPeerMemory::Name {
  std::string form;
  Key key;
  int64_t taken = 0, offset = 0, rest = 0;

  // nullopt: the text is of another form.
  static std::optional<Name> Parse(const std::string& text) {
    Name name;
    std::istringstream in(text);
    in >> name.form >> name.key.first >> name.key.second >> name.taken >> name.offset >> name.rest;
    const bool fits = name.offset >= 0 && name.rest >= 0 && name.rest <= name.taken &&
                      name.offset <= name.taken - name.rest;
    if (in.fail() || name.form != kForm || !fits) return std::nullopt;
    return name;
  }
  std::string Text() const {
    return fmt::format("{} {} {} {} {} {}", form, key.first, key.second, taken, offset, rest);
  }
};

class CudaPeerMemory::Buffer final : public DeviceBuffer {
 public:
  Buffer(CudaPeerMemory* owner, std::unique_ptr<MappedMemory> memory, int64_t bytes)
      : owner_(owner), memory_(std::move(memory)), bytes_(bytes) {}
  ~Buffer() override { owner_->Forget(*memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() override { return memory_->data(); }
  int64_t bytes() const override { return bytes_; }

 private:
  CudaPeerMemory* const owner_;
  const std::unique_ptr<MappedMemory> memory_;
  const int64_t bytes_;
};

class CudaPeerMemory::Mapping final : public DeviceBuffer {
 public:
  Mapping(std::shared_ptr<MappedMemory> memory, const Name& name)
      : memory_(std::move(memory)), offset_(name.offset), rest_(name.rest) {}
  void* data() override { return static_cast<std::byte*>(memory_->data()) + offset_; }
  int64_t bytes() const override { return rest_; }

 private:
  const std::shared_ptr<MappedMemory> memory_;
  const int64_t offset_, rest_;
};

CudaPeerMemory::CudaPeerMemory(int ordinal) : ordinal_(ordinal) {
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.requestedHandleTypes = kDescriptor;
  properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties_.location.id = ordinal;
  // For NCCL's network, which may read a rank's memory where it lies.
  if (Has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, ordinal))
    properties_.allocFlags.gpuDirectRDMACapable = 1;
  const base::MutexLock lock(&mu_);
  if (!Has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal) ||
      !Has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal)) {
    why_none_ = "the driver names no memory of this GPU by file descriptors";
    return;
  }
  size_t granularity = 0;
  const CUresult status = Driver().mem_get_allocation_granularity(
      &granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (status == CUDA_SUCCESS) {
    granularity_ = static_cast<int64_t>(granularity);
  } else {
    why_none_ = TextOf("cuMemGetAllocationGranularity", status);
  }
}

int64_t CudaPeerMemory::BytesTaken(int64_t bytes) const {
  return base::RoundUp(bytes, granularity_);
}

std::unique_ptr<DeviceBuffer> CudaPeerMemory::Allocate(int64_t bytes) {
  const int64_t taken = BytesTaken(bytes > 0 ? bytes : 1);
  const base::MutexLock lock(&mu_);
  if (!why_none_.empty()) return nullptr;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created =
      Driver().mem_create(&handle, static_cast<size_t>(taken), &properties_, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) ThrowNoRoom(ordinal_, bytes);
  if (created != CUDA_SUCCESS) {
    why_none_ =
        "the driver creates no memory that can be shared: " + TextOf("cuMemCreate", created);
    return nullptr;
  }
  MappedMemory::Refusal refusal;
  auto memory = MappedMemory::Map(ordinal_, handle, taken, &refusal);
  if (refusal.status == CUDA_ERROR_OUT_OF_MEMORY) ThrowNoRoom(ordinal_, bytes);
  if (memory == nullptr) {
    why_none_ = "the driver maps no memory that can be shared: " + refusal.text;
    return nullptr;
  }
  exportable_[static_cast<const std::byte*>(memory->data())] = {.memory = memory.get(),
                                                                .bytes = bytes};
  return std::make_unique<Buffer>(this, std::move(memory), bytes);
}

void CudaPeerMemory::Forget(const MappedMemory& memory) {
  const base::MutexLock lock(&mu_);
  const auto found = exportable_.find(static_cast<const std::byte*>(memory.data()));
  if (found->second.id) server_->Remove(*found->second.id);
  exportable_.erase(found);
}

bool CudaPeerMemory::CanReach(const std::string& uuid) {
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

std::optional<uint64_t> CudaPeerMemory::IdOf(Exportable* exportable, std::string* why_not) {
  if (exportable->id) return exportable->id;
  int fd = -1;
  const CUresult made = Driver().mem_export(&fd, exportable->memory->handle(), kDescriptor, 0);
  if (made != CUDA_SUCCESS) {
    *why_not = "the driver refuses the export: " + TextOf("cuMemExportToShareableHandle", made);
    return std::nullopt;
  }
  base::Fd owned(fd);
  ::fcntl(owned.get(), F_SETFD, FD_CLOEXEC);
  if (server_ == nullptr) {
    auto server = base::DescriptorServer::Start();
    if (!server.ok()) {
      *why_not = base::Message(server.status());
      return std::nullopt;
    }
    server_ = std::move(server).value();
  }
  exportable->id = server_->Add(std::move(owned));
  return exportable->id;
}

std::string CudaPeerMemory::Export(void* data, std::string* why_not) {
  BindDevice(ordinal_);
  const auto* const at = static_cast<const std::byte*>(data);
  const base::MutexLock lock(&mu_);
  const auto next = exportable_.upper_bound(at);
  if (next == exportable_.begin() || at >= std::prev(next)->first + std::prev(next)->second.bytes) {
    *why_not = why_none_.empty() ? "it is not of the kind that is shared" : why_none_;
    return {};
  }
  const auto& [begin, unused] = *std::prev(next);
  Exportable& exportable = std::prev(next)->second;
  const std::optional<uint64_t> id = IdOf(&exportable, why_not);
  if (!id) return {};
  const int64_t offset = at - begin;
  return Name{.form = kForm,
              .key = {server_->address(), *id},
              .taken = exportable.memory->bytes(),
              .offset = offset,
              .rest = exportable.bytes - offset}
      .Text();
}

std::shared_ptr<MappedMemory> CudaPeerMemory::MapNamed(const Name& name, std::string* why_not) {
  std::erase_if(imported_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto known = imported_.find(name.key); known != imported_.end()) {
    if (auto memory = known->second.lock()) return memory;
  }
  const auto fd = base::FetchDescriptor(name.key.first, name.key.second);
  if (!fd.ok()) {
    *why_not = base::Message(fd.status());
    return nullptr;
  }
  CUmemGenericAllocationHandle handle = 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver takes descriptors
  void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(fd->get()));
  const CUresult opened = Driver().mem_import(&handle, number, kDescriptor);
  if (opened != CUDA_SUCCESS) {
    *why_not = "the driver refuses the import: " + TextOf("cuMemImportFromShareableHandle", opened);
    return nullptr;
  }
  MappedMemory::Refusal refusal;
  std::shared_ptr<MappedMemory> memory = MappedMemory::Map(ordinal_, handle, name.taken, &refusal);
  if (memory == nullptr) {
    *why_not = "the driver maps no memory of the peer: " + refusal.text;
    return nullptr;
  }
  imported_[name.key] = memory;
  return memory;
}

std::unique_ptr<DeviceBuffer> CudaPeerMemory::Import(const std::string& text,
                                                     std::string* why_not) {
  BindDevice(ordinal_);
  const std::optional<Name> name = Name::Parse(text);
  if (!name) {
    *why_not = "the peer runs another version";
    return nullptr;
  }
  std::shared_ptr<MappedMemory> memory;
  {
    const base::MutexLock lock(&import_mu_);
    memory = MapNamed(*name, why_not);
  }
  if (memory == nullptr) return nullptr;
  return std::make_unique<Mapping>(std::move(memory), *name);
}

}  // namespace mt::kernels::cuda
