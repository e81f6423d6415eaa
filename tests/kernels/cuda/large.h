// Operands of more than 2^31 elements, whose indices do not fit into 32 bits: what the GPU makes of
// their beginning, of the rows around element 2^31 and of their end is compared with what the CPU
// backend, or a plain loop, makes of these rows alone. Needs 40 GB of free device memory.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {

inline constexpr int64_t kTwoTo31 = int64_t{1} << 31;
inline constexpr int64_t kNeededBytes = int64_t{40} << 30;

inline Backend& Gpu() { return BackendOf(Side::kGpu); }
inline Stream& GpuStream() { return StreamOf(Side::kGpu); }

// Rows of 2048, so that row 2^20 begins at element 2^31, and a number of them beyond it.
inline constexpr int64_t kHidden = 2048;
inline constexpr int64_t kMany = (int64_t{1} << 20) + 40;  // rows

// A matrix in device memory alone. Its contents are a function of the element's index.
class Large {
 public:
  Large(DType dtype, int64_t rows, int64_t columns)
      : tensor_{nullptr, dtype, {rows, columns}},
        buffer_(Gpu().device().Allocate(tensor_.Bytes(), MemoryKind::kDevice)) {
    tensor_.data = buffer_->data();
  }
  const Tensor& tensor() const { return tensor_; }
  // As a flat shard.
  Tensor Flat() const { return tensor_.Reshaped({tensor_.NumElements()}); }
  int64_t rows() const { return tensor_.shape[0]; }
  int64_t columns() const { return tensor_.shape[1]; }
  // By calls of far fewer elements than 2^31, so that it does not rest on what is tested.
  void FillNormal(uint64_t key, double std) const {
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 27) / columns());
    for (int64_t begin = 0; begin < rows(); begin += step) {
      const Tensor part = tensor_.Rows(begin, std::min(step, rows() - begin));
      Gpu().random().FillNormal(
          GpuStream(), {.key = key, .first_index = begin * columns(), .std = std, .out = part});
    }
  }
  void Zero() const { Gpu().device().Zero(GpuStream(), tensor_.data, tensor_.Bytes()); }

 private:
  Tensor tensor_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

// Rows to look at: the first, those around element 2^31, the last.
struct Rows {
  int64_t begin, count;
};
inline std::array<Rows, 3> RowsOf(const Large& x) {
  const int64_t count = std::max<int64_t>(2, 4096 / x.columns());
  CHECK_GT(x.rows() * x.columns(), kTwoTo31 + 2 * count * x.columns());
  return {Rows{0, count}, Rows{kTwoTo31 / x.columns() - count / 2, count},
          Rows{x.rows() - count, count}};
}

inline std::vector<std::byte> Read(const Large& x, const Rows& rows) {
  const Tensor part = x.tensor().Rows(rows.begin, rows.count);
  std::vector<std::byte> out(static_cast<size_t>(part.Bytes()));
  Gpu().device().Copy(GpuStream(), out.data(), part.data, part.Bytes());
  GpuStream().Synchronize();
  return out;
}

inline std::vector<double> Values(const Large& x, const Rows& rows) {
  const std::vector<std::byte> raw = Read(x, rows);
  std::vector<double> out;
  for (int64_t i = 0; i < rows.count * x.columns(); ++i)
    out.push_back(ValueAt(x.tensor().dtype, raw.data(), i));
  return out;
}

// The rows as an operand of both sides, with what the GPU holds now on both.
inline Operand Take(const Large& x, const Rows& rows) {
  Operand out(x.tensor().dtype, {rows.count, x.columns()});
  out.SetBoth(Read(x, rows).data());
  return out;
}
// What the GPU holds now becomes the operand's GPU side, to be compared with its CPU side.
inline void Retake(const Large& x, const Rows& rows, const Operand& operand) {
  operand.SetBytes(Side::kGpu, Read(x, rows).data());
}

inline std::string At(const Rows& rows) { return "rows from " + std::to_string(rows.begin); }

class LargeOperandsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const auto memory = Gpu().device().Memory();
    const int64_t free_bytes = memory ? memory->free_bytes : 0;
    if (free_bytes < kNeededBytes)
      GTEST_SKIP() << free_bytes << " bytes of device memory are free, " << kNeededBytes
                   << " are needed";
  }
};

}  // namespace mt::kernels::cuda
