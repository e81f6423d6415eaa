// Memory, copies, streams and events of a GPU, and the errors a caller meets.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaDeviceTest : public GpuTest {};

TEST(CudaModuleTest, AMissingModuleIsNotFound) {
  const auto backend = LoadCudaBackend({.module_path = "/nowhere/libmt_cuda.so"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(backend.status().ToString().find("/nowhere/libmt_cuda.so"), std::string::npos);
}

TEST(CudaModuleTest, AFileThatIsNoModuleIsRefused) {
  const auto backend = LoadCudaBackend({.module_path = "/etc/passwd"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsRefused) {
  const auto backend = LoadCudaBackend({.device = 99});
  ASSERT_FALSE(backend.ok());
  EXPECT_NE(backend.status().ToString().find("no GPU 99"), std::string::npos);
}

// Two processes on one GPU are neighbours as well, though CUDA does not call it its own peer.
TEST_F(CudaDeviceTest, ReachesItself) {
  Device& device = BackendOf(Side::kGpu).device();
  ASSERT_NE(device.peers(), nullptr);
  EXPECT_TRUE(device.peers()->CanReach(device.Uuid()));
  EXPECT_FALSE(device.peers()->CanReach("GPU-00000000-0000-0000-0000-000000000000"));
}

// A kernel writes where no memory is, which ends the context, and a GEMM is the next to run:
// whoever sees it first, the error names the device and CUDA's own cause. Ends the process.
[[noreturn]] void GemmAfterAFault() {
  Backend& gpu = BackendOf(Side::kGpu);
  Stream& stream = StreamOf(Side::kGpu);
  constexpr int64_t kN = 64;
  const auto buffer = gpu.device().Allocate(3 * kN * kN * 2, MemoryKind::kDevice);
  const auto matrix = [&](int64_t i) {
    return Tensor{static_cast<char*>(buffer->data()) + i * kN * kN * 2, DType::kBf16, {kN, kN}};
  };
  LinearForwardArgs args{.x = matrix(0), .w = matrix(1), .y = matrix(2)};
  SideScratch scratch(Side::kGpu, gpu.linear().Plan(args));
  args.workspace = scratch.workspace();
  gpu.linear().Forward(stream, args);
  stream.Synchronize();
  const auto other = gpu.device().CreateStream(StreamPriority::kLow);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is nobody's
  gpu.vector().Fill(*other, {reinterpret_cast<void*>(4096), DType::kF32, {4096}}, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  try {
    gpu.linear().Forward(stream, args);
  } catch (const DeviceError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(3);
  }
  std::_Exit(1);
}

TEST_F(CudaDeviceTest, AFaultThatAGemmIsTheFirstToSeeIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(GemmAfterAFault(), testing::ExitedWithCode(3),
              "cuda device 0: .*illegal memory access");
}

TEST_F(CudaDeviceTest, CopiesGoThroughDeviceAndPinnedMemory) {
  Device& device = BackendOf(Side::kGpu).device();
  EXPECT_EQ(device.kind(), DeviceKind::kCuda);
  Stream& stream = StreamOf(Side::kGpu);
  constexpr int64_t kBytes = 1 << 20;
  const auto on_device = device.Allocate(kBytes, MemoryKind::kDevice);
  const auto pinned = device.Allocate(kBytes, MemoryKind::kPinnedHost);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(on_device->data()) % 256, 0U);
  std::vector<uint8_t> sent(kBytes), received(kBytes);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 7 + i / 251);
  std::memcpy(pinned->data(), sent.data(), kBytes);
  device.Copy(stream, on_device->data(), pinned->data(), kBytes);
  device.Zero(stream, on_device->data(), 100);
  device.Copy(stream, received.data(), on_device->data(), kBytes);
  stream.Synchronize();
  std::fill_n(sent.begin(), 100, uint8_t{0});
  EXPECT_EQ(received, sent);
}

TEST_F(CudaDeviceTest, AStreamWaitsForAnotherStreamsEvent) {
  Backend& gpu = BackendOf(Side::kGpu);
  const auto first = gpu.device().CreateStream(StreamPriority::kLow);
  const auto second = gpu.device().CreateStream(StreamPriority::kHigh);
  const auto event = gpu.device().CreateEvent();
  EXPECT_TRUE(event->IsDone());  // nothing was recorded
  constexpr int64_t kFloats = int64_t{64} << 20;
  const auto a = gpu.device().Allocate(kFloats * 4, MemoryKind::kDevice);
  const Tensor x{a->data(), DType::kF32, {kFloats}};
  for (int i = 0; i < 20; ++i) gpu.vector().Fill(*first, x, 1);
  gpu.vector().Fill(*first, x, 2);
  event->Record(*first);
  second->Wait(*event);
  gpu.vector().AddTo(*second, x, x);
  std::vector<float> out(kFloats);
  gpu.device().Copy(*second, out.data(), a->data(), kFloats * 4);
  second->Synchronize();
  EXPECT_TRUE(event->IsDone());
  EXPECT_EQ(std::count(out.begin(), out.end(), 4.0F), kFloats);
}

TEST_F(CudaDeviceTest, RunningOutOfMemorySaysHowMuchThereIsAndHurtsNothing) {
  Device& device = BackendOf(Side::kGpu).device();
  try {
    device.Allocate(int64_t{1} << 45, MemoryKind::kDevice);
    FAIL() << "32 TiB were there";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("bytes are free"), std::string::npos) << error.what();
  }
  const auto buffer = device.Allocate(4096, MemoryKind::kDevice);
  device.Zero(StreamOf(Side::kGpu), buffer->data(), 4096);
  StreamOf(Side::kGpu).Synchronize();
}

}  // namespace
}  // namespace mt::kernels::cuda
