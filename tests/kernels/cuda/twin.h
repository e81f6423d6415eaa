// The CUDA backend against the CPU backend, which is the specification: the same values on both
// sides, outputs poisoned with NaN before each run, results compared by one table of tolerances.
// Tests that need a GPU are skipped, saying why, where the module or a GPU is missing.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/core/tensor.h"
#include "kernels/cuda/module.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cuda {

enum class Side : uint8_t { kCpu, kGpu };
inline constexpr Side kSides[] = {Side::kCpu, Side::kGpu};

// MT_TEST_SHARED_BYTES: shared memory of a block, to run all this as on a GPU with less of it
// (101376 is that of compute capability 8.6 and 8.9).
inline CudaConfig TestConfig() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
  const char* const bytes = std::getenv("MT_TEST_SHARED_BYTES");
  return {.shared_bytes = bytes == nullptr ? 0 : std::atoi(bytes)};
}
// The GPU's backend, made once; or why there is none.
inline const StatusOr<std::unique_ptr<Backend>>& GpuOrWhyNot() {
  static const auto backend = new StatusOr<std::unique_ptr<Backend>>(LoadCudaBackend(TestConfig()));
  return *backend;
}
inline Backend& BackendOf(Side side) {
  constexpr int kCpuThreads = 4;
  return side == Side::kCpu ? cpu::Cpu(kCpuThreads) : *GpuOrWhyNot().value();
}
inline Stream& StreamOf(Side side) {
  if (side == Side::kCpu) return cpu::AnyStream();
  static const auto stream =
      BackendOf(Side::kGpu).device().CreateStream(StreamPriority::kLow).release();
  return *stream;
}

// One operand on both sides.
class Operand {
 public:
  Operand() = default;
  Operand(DType dtype, Shape shape) : shape_(shape), dtype_(dtype) {
    const int64_t bytes = shape.NumElements() * SizeOf(dtype);
    for (const Side side : kSides) {
      buffers_[Index(side)] = BackendOf(side).device().Allocate(bytes, MemoryKind::kDevice);
    }
  }
  // The side's tensor; absent where the operand was never made.
  Tensor operator[](Side side) const {
    if (buffers_[0] == nullptr) return {};
    return {buffers_[Index(side)]->data(), dtype_, shape_};
  }
  int64_t size() const { return shape_.NumElements(); }
  int64_t bytes() const { return size() * SizeOf(dtype_); }
  DType dtype() const { return dtype_; }

  std::vector<std::byte> Bytes(Side side) const {
    std::vector<std::byte> out(static_cast<size_t>(bytes()));
    BackendOf(side).device().Copy(StreamOf(side), out.data(), (*this)[side].data, bytes());
    StreamOf(side).Synchronize();
    return out;
  }
  void SetBytes(Side side, const void* from) const {
    BackendOf(side).device().Copy(StreamOf(side), (*this)[side].data, from, bytes());
    StreamOf(side).Synchronize();
  }
  void SetBoth(const void* from) const {
    for (const Side side : kSides) SetBytes(side, from);
  }
  // The GPU's contents become the CPU's: what one op left is the next one's equal input.
  void Share() const { SetBytes(Side::kGpu, Bytes(Side::kCpu).data()); }
  // NaN in every float type, an unlikely number in others.
  void Poison() const {
    const std::vector<std::byte> ones(static_cast<size_t>(bytes()), std::byte{0xFF});
    SetBoth(ones.data());
  }
  std::vector<double> Values(Side side) const;

 private:
  static size_t Index(Side side) { return static_cast<size_t>(side); }
  Shape shape_;
  DType dtype_ = DType::kF32;
  std::shared_ptr<DeviceBuffer> buffers_[2];
};

inline double ValueAt(DType dtype, const std::byte* data, int64_t i) {
  const auto read = [&](auto zero) {
    std::memcpy(&zero, data + i * SizeOf(dtype), sizeof(zero));
    return zero;
  };
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(read(float{}));
    case DType::kF64:
      return read(double{});
    case DType::kBf16:
      return static_cast<double>(cpu::Widen(read(Bf16{})));
    case DType::kF16:
      return static_cast<double>(cpu::Widen(read(F16{})));
    case DType::kI32:
      return read(int32_t{});
    case DType::kI64:
      return static_cast<double>(read(int64_t{}));
    case DType::kU8:
      return read(uint8_t{});
  }
  return 0;
}

inline std::vector<double> Operand::Values(Side side) const {
  const std::vector<std::byte> raw = Bytes(side);
  std::vector<double> out(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i) out[static_cast<size_t>(i)] = ValueAt(dtype_, raw.data(), i);
  return out;
}

// Makes operands with equal contents on both sides.
class Twins {
 public:
  explicit Twins(uint32_t seed = 1) : random_(seed) {}

  Operand Random(DType dtype, Shape shape, double scale = 1) {
    switch (dtype) {
      case DType::kBf16:
        return Upload(random_.Make<Bf16>(shape, scale));
      case DType::kF16:
        return Upload(random_.Make<F16>(shape, scale));
      case DType::kF64:
        return Upload(random_.Make<double>(shape, scale));
      default:
        return Upload(random_.Make<float>(shape, scale));
    }
  }
  template <class T>
  static Operand Upload(cpu::Array<T> values) {
    Operand out(DTypeOf<T>(), values.shape());
    out.SetBoth(values.data());
    return out;
  }
  template <class T>
  static Operand Of(Shape shape, const std::vector<T>& values) {
    Operand out(DTypeOf<T>(), shape);
    CHECK_EQ(static_cast<int64_t>(values.size()), shape.NumElements());
    out.SetBoth(values.data());
    return out;
  }
  static Operand Output(DType dtype, Shape shape) {
    Operand out(dtype, shape);
    out.Poison();
    return out;
  }
  double Next() { return random_.Next(); }

 private:
  cpu::Uniform random_;
};

// Scratch of one call on one side, poisoned: ops may not rely on what it holds.
class SideScratch {
 public:
  SideScratch(Side side, int64_t bytes)
      : buffer_(BackendOf(side).device().Allocate(bytes, MemoryKind::kDevice)) {
    const std::vector<std::byte> ones(static_cast<size_t>(bytes), std::byte{0xFF});
    BackendOf(side).device().Copy(StreamOf(side), buffer_->data(), ones.data(), bytes);
    StreamOf(side).Synchronize();
  }
  Workspace workspace() { return {buffer_->data(), buffer_->bytes()}; }

 private:
  std::unique_ptr<DeviceBuffer> buffer_;
};

// Runs `entry` with a workspace of what it asks for.
template <class Args, class Entry>
void RunWith(Side side, Args args, const Entry& entry) {
  LinearOps& linear = BackendOf(side).linear();
  SideScratch scratch(side, linear.Plan(args));
  args.workspace = scratch.workspace();
  (linear.*entry)(StreamOf(side), args);
  StreamOf(side).Synchronize();
}

// What an update reads of its step.
inline Operand ScalarsOfStep(int64_t skip) {
  StepScalars s;
  s.factor = 0.125;
  s.lr = 3e-4;
  s.weight_decay = 0.1;
  s.bias_correction1 = 0.19;
  s.bias_correction2 = 0.002;
  s.skip = skip;
  Operand out(DType::kU8, {static_cast<int64_t>(sizeof(s))});
  out.SetBoth(&s);
  return out;
}
inline const StepScalars* ScalarsAt(const Operand& scalars, Side side) {
  return static_cast<const StepScalars*>(scalars[side].data);
}

// What kind of arithmetic made an output.
enum class Kind : uint8_t { kElement, kSum, kGemm, kFused, kAttention };

// The one table: how far |a - b| / |b| (2-norms) may go, by kind and type of the operands. f32
// differs by the order of sums and by libm; 16-bit outputs by elements that fall on the other side
// of a rounding border; a fused activation does not round what it reads; attention rounds
// probabilities to 16 bits for the tensor cores.
inline double NormTolerance(Kind kind, DType dtype) {
  const int type = dtype == DType::kBf16 ? 1 : dtype == DType::kF16 ? 2 : 0;
  constexpr double kTable[5][3] = {{1e-6, 5e-4, 1e-4},   // kElement
                                   {3e-6, 1e-3, 2e-4},   // kSum
                                   {3e-6, 1e-3, 2e-4},   // kGemm
                                   {3e-6, 4e-3, 5e-4},   // kFused
                                   {1e-5, 6e-3, 1e-3}};  // kAttention
  return kTable[static_cast<int>(kind)][type];
}

// Largest relative spacing of a type's numbers.
inline double Spacing(DType dtype) {
  return dtype == DType::kBf16 ? 0x1p-7 : dtype == DType::kF16 ? 0x1p-10 : 0x1p-22;
}

// The GPU's operand against the CPU's: 2-norm as the table says for `dtype` (the type of the op's
// activations), and every element within one spacing of its type and 25 times the norm's share.
inline void ExpectClose(const Operand& operand, Kind kind, DType dtype, const std::string& what) {
  const std::vector<double> actual = operand.Values(Side::kGpu),
                            expected = operand.Values(Side::kCpu);
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  error = std::sqrt(error);
  norm = std::sqrt(norm);
  const double tolerance = NormTolerance(kind, dtype);
  EXPECT_LE(error, tolerance * norm) << what;
  const double floor = 25 * tolerance * norm / std::sqrt(static_cast<double>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = Spacing(operand.dtype()) * std::abs(expected[i]) + floor;
    ASSERT_LE(std::abs(actual[i] - expected[i]), allowed)
        << what << " element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

inline void ExpectSameBits(const Operand& operand, const std::string& what) {
  EXPECT_EQ(operand.Bytes(Side::kGpu), operand.Bytes(Side::kCpu)) << what;
}

// Skips where there is no GPU.
class GpuTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const auto& backend = GpuOrWhyNot();
    if (!backend.ok()) GTEST_SKIP() << base::Message(backend.status());
  }
};

inline std::string TypeName(const testing::TestParamInfo<DType>& info) {
  return std::string(Name(info.param));
}
#define INSTANTIATE_FOR_TYPES(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Types, Suite, testing::Values(DType::kF32, DType::kBf16, DType::kF16), \
                           TypeName)

}  // namespace mt::kernels::cuda
