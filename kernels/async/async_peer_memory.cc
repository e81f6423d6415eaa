// A name is an address and what follows it in its allocation.
#include "kernels/async/async_peer_memory.h"

#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace mt::kernels::async {
namespace {

constexpr const char* kUuidPrefix = "ASYNC-";

struct Name {
  void* data = nullptr;
  int64_t rest = 0;
};

class Mapping final : public DeviceBuffer {
 public:
  Mapping(AsyncWorld* world, int rank, const Name& name) : world_(world), rank_(rank), name_(name) {
    world_->SetMapped(rank_, name_.data, true);
  }
  ~Mapping() override { world_->SetMapped(rank_, name_.data, false); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* data() override { return name_.data; }
  int64_t bytes() const override { return name_.rest; }

 private:
  AsyncWorld* const world_;
  const int rank_;
  const Name name_;
};

class AsyncPeerMemory final : public PeerMemory {
 public:
  AsyncPeerMemory(AsyncWorld* world, int rank, Sharing sharing)
      : world_(world), rank_(rank), sharing_(sharing) {}

  bool CanReach(const std::string& uuid) override {
    return sharing_ != Sharing::kNoPath && uuid.starts_with(kUuidPrefix);
  }
  std::string Export(void* data, std::string* why_not) override {
    const MemoryFrom found = world_->From(data);
    const Name name{.data = data, .rest = found.bytes};
    const bool refuses = sharing_ == Sharing::kNoExport ||
                         (sharing_ == Sharing::kWordsAlone && name.rest > kMostOfWords);
    if (found.shared && !refuses) return {reinterpret_cast<const char*>(&name), sizeof(name)};
    *why_not = found.bytes == 0 ? "no device allocated this memory"
               : !found.shared  ? "it is not of the kind that is shared"
                                : "this device names no memory";
    return {};
  }
  std::unique_ptr<DeviceBuffer> Import(const std::string& text, std::string* why_not) override {
    Name name;
    if (sharing_ == Sharing::kNoImport || text.size() != sizeof(name)) {
      *why_not = "this device maps no memory";
      return nullptr;
    }
    std::memcpy(&name, text.data(), sizeof(name));
    if (world_->From(name.data).bytes == name.rest)
      return std::make_unique<Mapping>(world_, rank_, name);
    *why_not = "the memory is gone";
    return nullptr;
  }

 private:
  AsyncWorld* const world_;
  const int rank_;
  const Sharing sharing_;
};

}  // namespace

std::string AsyncUuid(int rank) { return kUuidPrefix + std::to_string(rank); }

std::unique_ptr<PeerMemory> MakeAsyncPeerMemory(AsyncWorld* world, int rank, Sharing sharing) {
  if (sharing == Sharing::kNone) return nullptr;
  return std::make_unique<AsyncPeerMemory>(world, rank, sharing);
}

}  // namespace mt::kernels::async
