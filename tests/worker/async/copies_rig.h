// Members of a group over copies (worker/comm/copies), each a rank of a world of asynchronous
// devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/async/async_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/async/async_group.h"
#include "worker/comm/copies/copy_factory.h"

namespace mt::comm {

using Bytes = std::vector<std::byte>;

// Of each member; the second half is for results.
inline constexpr int64_t kMemory = int64_t{128} << 10;
// For each peer: larger shards go in pieces.
inline constexpr int64_t kSlot = 256;

// A member of the group "dp-reduce/0" of all ranks.
struct Member {
  std::unique_ptr<kernels::Backend> cpu, backend;
  std::unique_ptr<kernels::Stream> stream;
  std::unique_ptr<kernels::DeviceBuffer> memory, scratch;
  std::unique_ptr<GroupFactory> factory;
  std::unique_ptr<ProcessGroup> group;
  Bytes given, result;  // of host memory, for copies that run later

  kernels::Device& device() const { return backend->device(); }
  std::byte* at(int64_t offset) const { return static_cast<std::byte*>(memory->data()) + offset; }
  std::byte* in() const { return at(0); }
  std::byte* out() const { return at(kMemory / 2); }
};

class Rig {
 public:
  struct Options {
    int size = 2;
    kernels::async::AsyncWorld::Options world;
    std::function<kernels::async::Sharing(int rank)> sharing = [](int) {
      return kernels::async::Sharing::kAll;
    };
    bool share = true;
    std::function<std::string(int rank)> host_of = {};  // empty: all on one host
    bool own_kind = false;
  };
  explicit Rig(Options options)
      : options_(std::move(options)),
        world_(options_.world),
        members_(static_cast<size_t>(options_.size)) {
    Run([this](int rank) { Make(rank); });
  }
  ~Rig() {
    try {
      Run([this](int rank) {
        if (member(rank).group != nullptr) member(rank).group->LetGo();
        member(rank).group.reset();  // before the factory, whose watch looks at it
        member(rank) = {};
      });
    } catch (const kernels::DeviceError&) {  // met by the test already
    }
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  void Run(const std::function<void(int rank)>& body) { world_.Run(options_.size, body); }
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  kernels::async::AsyncWorld& world() { return world_; }

 private:
  void Make(int rank) {
    Member& me = member(rank);
    me.cpu = kernels::cpu::MakeCpuBackend({}).value();
    me.backend = kernels::async::MakeAsyncBackend(
        {.cpu = me.cpu.get(), .world = &world_, .rank = rank, .sharing = options_.sharing(rank)});
    me.stream = me.device().CreateStream(kernels::StreamPriority::kHigh);
    me.memory = me.device().Allocate(kMemory, kernels::MemoryKind::kShared);
    const int64_t scratch = (options_.size - 1) * kSlot;
    me.scratch = me.device().Allocate(scratch, kernels::MemoryKind::kShared);
    me.factory = MakeCopyFactory({.host = &host_,
                                  .otherwise = &device_,
                                  .device = &me.device(),
                                  .vector = &me.backend->vector(),
                                  .watched = false});
    std::vector<int> members(static_cast<size_t>(options_.size));
    std::iota(members.begin(), members.end(), 0);
    me.group = me.factory
                   ->Create({.name = "dp-reduce/0",
                             .members = members,
                             .my_index = rank,
                             .own_kind = options_.own_kind})
                   .value();
    if (!options_.share || me.group == nullptr) return;
    const Status shared = me.group->Share(
        {.operands = {{me.memory->data(), kMemory}}, .scratch = {me.scratch->data(), scratch}});
    EXPECT_TRUE(shared.ok()) << shared;
  }

  const Options options_;
  kernels::async::AsyncWorld world_;
  AsyncHub host_{{.world = &world_, .on_host = true, .config = {}, .host_of = options_.host_of}};
  AsyncHub device_{{.world = &world_, .config = {}}};
  std::vector<Member> members_;
};

// Finite values whose sums depend on their order.
inline Bytes Values(kernels::DType dtype, int64_t count, int rank) {
  Bytes data(static_cast<size_t>(count * kernels::SizeOf(dtype)));
  uint64_t state = static_cast<uint64_t>(rank) * 7919 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double value = static_cast<double>(state >> 40U) * 0x1p-20 - 8;
    const auto single = static_cast<float>(value);
    std::byte* const at = data.data() + i * kernels::SizeOf(dtype);
    if (dtype == kernels::DType::kF64) {
      std::memcpy(at, &value, sizeof(value));
    } else if (dtype == kernels::DType::kF32) {
      std::memcpy(at, &single, sizeof(single));
    } else {
      // Exponents that are neither infinite nor subnormal, of either type.
      const auto bits = static_cast<uint16_t>((state >> 40U & 0xBFFFU) | 0x2000U);
      std::memcpy(at, &bits, sizeof(bits));
    }
  }
  return data;
}

}  // namespace mt::comm
