// The first run of a planned call beside a stream that waits for something: before
// Backend::RunPlanned the host waits with it, as it would for a collective whose peers are late;
// after it no call does. In processes of their own, which have loaded no library's kernel yet.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "kernels/ops/tuning.h"
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

constexpr const char* kTableVariable = "MT_FIRST_CALLS_TABLE";
constexpr int kNoneWaited = 0, kWaited = 3, kFailed = 1;

// The products of a layer and its attention on memory that holds nothing of interest.
class Calls {
 public:
  explicit Calls(Backend* gpu)
      : gpu_(*gpu),
        data_(gpu_.device().Allocate(kBytes, MemoryKind::kDevice)),
        room_(gpu_.device().Allocate(kRoom, MemoryKind::kDevice)) {
    gpu_.linear().Plan(forward_);
    gpu_.linear().Plan(act_);
    gpu_.linear().Plan(input_);
    gpu_.linear().Plan(input_act_);
    gpu_.linear().Plan(weight_);
  }
  void PlanAttention() {
    gpu_.attention().Plan(look_);
    gpu_.attention().Plan(back_);
  }
  void Make(Stream& stream) const {
    gpu_.linear().Forward(stream, forward_);
    gpu_.linear().ForwardAct(stream, act_);
    gpu_.linear().InputGrad(stream, input_);
    gpu_.linear().InputGradAct(stream, input_act_);
    gpu_.linear().WeightGrad(stream, weight_);
    gpu_.attention().Forward(stream, look_);
    gpu_.attention().Grad(stream, back_);
  }

 private:
  static constexpr int64_t kT = 512, kH = 256, kF = 1024, kBytes = kF * kT * 4,
                           kRoom = int64_t{128} << 20;
  static constexpr DType kType = DType::kBf16;

  Tensor At(DType type, Shape shape) const { return {data_->data(), type, shape}; }
  HeadView Heads() const {
    return {.data = data_->data(), .s_stride = 2 * kH, .b_stride = kH, .head_stride = 64};
  }
  Workspace room() const { return {room_->data(), kRoom}; }

  Backend& gpu_;
  const std::unique_ptr<DeviceBuffer> data_, room_;
  const LinearForwardArgs forward_{.x = At(kType, {kT, kH}),
                                   .w = At(kType, {kF, kH}),
                                   .bias = At(kType, {kF}),
                                   .y = At(kType, {kT, kF}),
                                   .workspace = room()};
  const LinearForwardActArgs act_{.x = At(kType, {kT, kH}),
                                  .w = At(kType, {kF, kH}),
                                  .bias = At(kType, {kF}),
                                  .pre = At(kType, {kT, kF}),
                                  .y = At(kType, {kT, kF}),
                                  .workspace = room()};
  const LinearInputGradArgs input_{.dy = At(kType, {kT, kF}),
                                   .w = At(kType, {kF, kH}),
                                   .dx = At(kType, {kT, kH}),
                                   .workspace = room()};
  const LinearInputGradActArgs input_act_{.dy = At(kType, {kT, kH}),
                                          .w = At(kType, {kH, kF}),
                                          .pre = At(kType, {kT, kF}),
                                          .dpre = At(kType, {kT, kF}),
                                          .dbias = At(DType::kF32, {kF}),
                                          .workspace = room()};
  const LinearWeightGradArgs weight_{.dy = At(kType, {kT, kF}),
                                     .x = At(kType, {kT, kH}),
                                     .mode = GradMode::kAdd,
                                     .dw = At(DType::kF32, {kF, kH}),
                                     .dbias = At(DType::kF32, {kF}),
                                     .workspace = room()};
  const AttentionShape shape_{
      .dtype = kType, .s = 256, .b = 2, .a = 4, .g = 4, .d = 64, .scale = 0.125};
  const AttentionForwardArgs look_{.shape = shape_,
                                   .q = Heads(),
                                   .k = Heads(),
                                   .v = Heads(),
                                   .o = Heads(),
                                   .lse = At(DType::kF32, {2, 4, 256}),
                                   .workspace = room()};
  const AttentionGradArgs back_{.shape = shape_,
                                .q = Heads(),
                                .k = Heads(),
                                .v = Heads(),
                                .o = Heads(),
                                .lse = At(DType::kF32, {2, 4, 256}),
                                .do_ = Heads(),
                                .dq = Heads(),
                                .dk = Heads(),
                                .dv = Heads(),
                                .deterministic = false,
                                .workspace = room()};
};

// Another process times the products, since that loads their kernels. Returns the entries' file.
std::string TimedTable() {
  const auto gpu = LoadCudaBackend(TestConfig()).value();
  const Calls calls(gpu.get());
  TuningTable& table = *gpu->tuning();
  if (!table.Time(table.Missing()).ok()) return "";
  const std::string path = std::filesystem::temp_directory_path() /
                           ("mt-first-calls-" + std::to_string(::getpid()) + ".txt");
  std::ofstream out(path);
  for (const TuningEntry& e : table.Entries()) out << e.key << '\n' << e.choice << '\n';
  return path;
}

// Ends the process: with kWaited where the calls' host waited until the stream beside them went on,
// after two seconds.
[[noreturn]] void MakeCallsBesideAWait(bool run_planned) {
  const auto gpu = LoadCudaBackend(TestConfig()).value();
  Device& device = gpu->device();
  const auto stream = device.CreateStream(StreamPriority::kLow);
  const auto other = device.CreateStream(StreamPriority::kLow);
  Calls calls(gpu.get());
  std::vector<TuningEntry> entries;
  std::ifstream in(std::getenv(kTableVariable));  // NOLINT(concurrency-mt-unsafe): nobody sets it
  for (TuningEntry e; std::getline(in, e.key) && std::getline(in, e.choice);) entries.push_back(e);
  TuningTable& table = *gpu->tuning();
  const auto refused = table.Import(table.Identity(), entries);
  if (!refused.ok() || !refused->empty() || !table.Missing().empty()) std::_Exit(kFailed);
  calls.PlanAttention();
  if (run_planned) gpu->RunPlanned();

  const auto word = device.Allocate(sizeof(uint32_t), MemoryKind::kPinnedHost);
  auto* const go = static_cast<uint32_t*>(word->data());
  *go = 0;
  other->WaitValue(go, 1);
  std::atomic<bool> made = false, late = false;
  std::thread watch([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!made && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    late = !made;
    std::atomic_ref<uint32_t>(*go).store(1);
  });
  calls.Make(*stream);
  made = true;
  watch.join();
  stream->Synchronize();
  other->Synchronize();
  std::_Exit(late ? kWaited : kNoneWaited);
}

class FirstCallsTest : public GpuTest {
 protected:
  // (A process that a test starts runs its test from the beginning.)
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // NOLINTBEGIN(concurrency-mt-unsafe): one thread
    if (std::getenv(kTableVariable) != nullptr) return;
    path_ = TimedTable();
    ASSERT_FALSE(path_.empty());
    ::setenv(kTableVariable, path_.c_str(), 1);
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // as mt-rank has it
    // NOLINTEND(concurrency-mt-unsafe)
  }
  void TearDown() override {
    if (path_.empty()) return;
    std::filesystem::remove(path_);
    ::unsetenv(kTableVariable);  // NOLINT(concurrency-mt-unsafe): one thread
  }

 private:
  std::string path_;
};

TEST_F(FirstCallsTest, WaitForOtherStreamsBeforeRunPlanned) {
  EXPECT_EXIT(MakeCallsBesideAWait(false), testing::ExitedWithCode(kWaited), "");
}

TEST_F(FirstCallsTest, WaitForNobodyAfterRunPlanned) {
  EXPECT_EXIT(MakeCallsBesideAWait(true), testing::ExitedWithCode(kNoneWaited), "");
}

}  // namespace
}  // namespace mt::kernels::cuda
