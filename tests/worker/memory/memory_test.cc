// Plans add up; allocations are aligned, zeroed and disjoint; running out of memory says by how
// much.
#include "worker/memory/memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace mt::memory {
namespace {

class HostBuffer final : public kernels::DeviceBuffer {
 public:
  explicit HostBuffer(int64_t bytes)
      : bytes_(bytes), data_(std::aligned_alloc(256, static_cast<size_t>(bytes))) {
    std::memset(data_, 0xAB, static_cast<size_t>(bytes));
  }
  ~HostBuffer() override { std::free(data_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
  void* data_;
};

class NoStream final : public kernels::Stream {
 public:
  void Wait(kernels::Event&) override {}
  void Synchronize() override {}
};

// Memory full of rubbish, refused above a limit.
class TestDevice : public kernels::Device {
 public:
  explicit TestDevice(int64_t limit_bytes, kernels::DeviceKind kind = kernels::DeviceKind::kCpu)
      : limit_bytes_(limit_bytes), kind_(kind) {}
  kernels::DeviceKind kind() const override { return kind_; }
  std::string Describe() const override { return "test"; }
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t bytes, kernels::MemoryKind) override {
    if (bytes > limit_bytes_) throw kernels::DeviceMemoryError("no room for it");
    return std::make_unique<HostBuffer>(bytes);
  }
  std::unique_ptr<kernels::Stream> CreateStream(kernels::StreamPriority) override {
    return std::make_unique<NoStream>();
  }
  std::unique_ptr<kernels::Event> CreateEvent() override { return nullptr; }
  std::unique_ptr<kernels::MarkRing> CreateMarkRing(int64_t, const base::Clock*) override {
    return nullptr;
  }
  void Copy(kernels::Stream&, void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void Zero(kernels::Stream&, void* to, int64_t bytes) override {
    std::memset(to, 0, static_cast<size_t>(bytes));
  }

 private:
  int64_t limit_bytes_;
  kernels::DeviceKind kind_;
};

TEST(MemoryTest, BlocksAreAlignedZeroedAndApart) {
  MemoryPlan plan;
  const Block a = plan.Reserve(Kind::kWeights, 100);
  const Block b = plan.Reserve(Kind::kWeights, 256);
  const Block c = plan.Reserve(Kind::kOptimizer, 1);
  const Block none = plan.Reserve(Kind::kComm, 0);
  TestDevice device(1 << 20);
  const auto memory = Memory::Allocate(device, plan, 1 << 20).value();
  const std::vector<Block> blocks = {a, b, c};
  for (size_t i = 0; i < blocks.size(); ++i) {
    auto* bytes = static_cast<unsigned char*>(memory->Data(blocks[i]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 256, 0U);
    for (int64_t j = 0; j < blocks[i].bytes; ++j) ASSERT_EQ(bytes[j], 0) << i;
    std::memset(bytes, 1, static_cast<size_t>(blocks[i].bytes));
  }
  EXPECT_EQ(memory->Data(none), nullptr);
  EXPECT_EQ(memory->Report()[static_cast<size_t>(Kind::kWeights)], 512);
  EXPECT_EQ(memory->Report()[static_cast<size_t>(Kind::kOptimizer)], 256);
  EXPECT_EQ(Total(memory->Report()), 768);
}

TEST(MemoryTest, RunningOutNamesBytesKindsAndRemedy) {
  MemoryPlan plan;
  plan.Reserve(Kind::kWeights, int64_t{3} << 30);
  plan.Reserve(Kind::kActivations, int64_t{5} << 30);
  TestDevice device(1 << 20);
  const Status planned = Memory::Allocate(device, plan, int64_t{6} << 30).status();
  EXPECT_EQ(planned.code(), absl::StatusCode::kResourceExhausted);
  const std::string message = base::Message(planned);
  for (const char* part :
       {"needs 8589934592 bytes = 8.000 GiB", "weights 3.000 GiB", "activations 5.000 GiB",
        "2147483648 bytes = 2.000 GiB more than the 6442450944 bytes = 6.000 GiB that are "
        "available",
        "training.micro_batch_size", "parallel.tensor, parallel.pipeline"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  const Status refused = Memory::Allocate(device, plan, int64_t{16} << 30).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(base::Message(refused).find("the device refused: no room for it"), std::string::npos);
  // A GPU has one rank: what helps there is another.
  TestDevice gpu(1 << 20, kernels::DeviceKind::kCuda);
  const std::string on_gpu = base::Message(Memory::Allocate(gpu, plan, int64_t{16} << 30).status());
  EXPECT_NE(on_gpu.find("end what else holds memory of this GPU (nvidia-smi"), std::string::npos)
      << on_gpu;
  EXPECT_NE(on_gpu.find("over more GPUs (parallel.tensor, parallel.pipeline)"), std::string::npos)
      << on_gpu;
}

TEST(MemoryTest, WhatIsTakenIsToldAndNotAllocated) {
  MemoryPlan plan;
  plan.Reserve(Kind::kWeights, int64_t{3} << 30);
  plan.CountTaken(Kind::kComm, int64_t{1} << 29);
  plan.CountTaken(Kind::kComm, int64_t{1} << 28);
  TestDevice gpu(int64_t{1} << 20, kernels::DeviceKind::kCuda);
  const std::string message = base::Message(Memory::Allocate(gpu, plan, int64_t{1} << 30).status());
  EXPECT_NE(message.find("needs 3221225472 bytes = 3.000 GiB (weights 3.000 GiB) besides what it "
                         "has taken (comm 0.750 GiB), 2147483648 bytes"),
            std::string::npos)
      << message;
  MemoryPlan small;
  small.CountTaken(Kind::kComm, 512);
  const auto memory = Memory::Allocate(gpu, small, 1 << 20).value();
  EXPECT_EQ(Total(memory->Report()), 0);
  EXPECT_EQ(memory->taken()[static_cast<size_t>(Kind::kComm)], 512);
}

// A device whose shared memory comes in pieces of 1,024 bytes.
class SharingDevice final : public TestDevice {
 public:
  static constexpr int64_t kPiece = 1024;
  using TestDevice::TestDevice;
  int64_t BytesTaken(int64_t bytes, kernels::MemoryKind kind) const override {
    return kind == kernels::MemoryKind::kShared ? (bytes + kPiece - 1) / kPiece * kPiece : bytes;
  }
  std::unique_ptr<kernels::DeviceBuffer> Allocate(int64_t bytes,
                                                  kernels::MemoryKind kind) override {
    allocated.emplace_back(bytes, kind);
    return TestDevice::Allocate(bytes, kind);
  }
  std::vector<std::pair<int64_t, kernels::MemoryKind>> allocated;
};

TEST(MemoryTest, WhatPeersWriteIsSharedMemoryAndCountsAsItIsAllocated) {
  using kernels::MemoryKind;
  constexpr int64_t kBytes = 1280;
  for (const bool shared : {false, true}) {
    SharingDevice device(1 << 20);
    MemoryPlan plan;
    if (shared) plan.ShareWithPeers();
    for (int k = 0; k < kNumKinds; ++k) plan.Reserve(static_cast<Kind>(k), kBytes);
    EXPECT_EQ(Total(plan.bytes()), kNumKinds * kBytes);
    const BytesByKind taken = plan.BytesTaken(device);
    const int64_t most = Total(taken);
    EXPECT_EQ(most, kNumKinds * kBytes + (shared ? 5 * (2048 - kBytes) : 0));
    // To the last byte.
    const Status refused = Memory::Allocate(device, plan, most - 1).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(base::Message(refused).find(fmt::format("needs {} bytes", most)), std::string::npos)
        << refused;
    const auto memory = Memory::Allocate(device, plan, most).value();
    EXPECT_EQ(memory->Report(), taken);
    ASSERT_EQ(device.allocated.size(), static_cast<size_t>(kNumKinds));
    for (int k = 0; k < kNumKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      const bool of_peers = kind == Kind::kWeights || kind == Kind::kGradients ||
                            kind == Kind::kActivations || kind == Kind::kWorkspace ||
                            kind == Kind::kComm;
      const MemoryKind expected = kind == Kind::kPinned ? MemoryKind::kPinnedHost
                                  : shared && of_peers  ? MemoryKind::kShared
                                                        : MemoryKind::kDevice;
      EXPECT_EQ(plan.KindOf(kind), expected) << Name(kind);
      EXPECT_EQ(device.allocated[static_cast<size_t>(k)],
                std::pair(shared && of_peers ? int64_t{2048} : kBytes, expected))
          << Name(kind);
    }
  }
}

TEST(MemoryTest, HostHasSomeMemoryButNotAllThereIs) {
  const auto available = AvailableHostBytes();
  ASSERT_TRUE(available.ok()) << available.status();
  EXPECT_GT(*available, 0);
  EXPECT_LT(*available, int64_t{1} << 50);
}

}  // namespace
}  // namespace mt::memory
