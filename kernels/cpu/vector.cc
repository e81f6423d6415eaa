#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {
namespace {

template <class T>
void AddTyped(ThreadPool& pool, const Tensor& to, const Tensor& from) {
  T* const sum = to.Data<T>();
  const T* addend = from.Data<T>();
  pool.ForRanges(to.NumElements(), kElementGrain, [&](int64_t begin, int64_t end) {
    AddRange(sum + begin, addend + begin, end - begin);
  });
}

template <class T>
void FillTyped(ThreadPool& pool, const Tensor& to, T value) {
  T* const data = static_cast<T*>(to.data);
  pool.ForRanges(to.NumElements(), kElementGrain,
                 [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, value); });
}

// Every conversion goes through f32, except f64 to and from f32 and equal types. f64 to a 16-bit
// type therefore rounds twice, as initial values do by definition (to f32, then to the type).
void ToFloat(const Tensor& from, int64_t begin, int64_t n, float* out) {
  const auto* half = static_cast<const uint16_t*>(from.data);
  switch (from.dtype) {
    case DType::kF32:
      std::memcpy(out, from.Data<float>() + begin, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF64:
      return DoubleToFloat(from.Data<double>() + begin, out, n);
    case DType::kBf16:
      return Bf16ToFloat(half + begin, out, n);
    case DType::kF16:
      return F16ToFloat(half + begin, out, n);
    default:
      CHECK(false) << "Cast from " << Name(from.dtype);
  }
}

void FromFloat(const float* from, const Tensor& to, int64_t begin, int64_t n) {
  auto* half = static_cast<uint16_t*>(to.data);
  switch (to.dtype) {
    case DType::kF32:
      std::memcpy(to.Data<float>() + begin, from, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF64:
      return FloatToDouble(from, to.Data<double>() + begin, n);
    case DType::kBf16:
      return FloatToBf16(from, half + begin, n);
    case DType::kF16:
      return FloatToF16(from, half + begin, n);
    default:
      CHECK(false) << "Cast to " << Name(to.dtype);
  }
}

void CastRange(const Tensor& to, const Tensor& from, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 1024;
  std::array<float, kChunk> chunk;
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    ToFloat(from, at, n, chunk.data());
    FromFloat(chunk.data(), to, at, n);
  }
}

}  // namespace

void CpuVector::AddTo(Stream& /*stream*/, const Tensor& to, const Tensor& from) const {
  CHECK(to.dtype == from.dtype && to.NumElements() == from.NumElements());
  switch (to.dtype) {
    case DType::kI32:
      return AddTyped<int32_t>(*pool_, to, from);
    case DType::kI64:
      return AddTyped<int64_t>(*pool_, to, from);
    default:
      return ForFloatType(to.dtype, "AddTo",
                          [&](auto zero) { AddTyped<decltype(zero)>(*pool_, to, from); });
  }
}

void CpuVector::SumPartials(Stream& /*stream*/, const Tensor& out, const Partials& partials) const {
  CHECK(partials.count > 0 && partials.count <= kMaxPartials) << partials.count;
  ForFloatType(out.dtype, "SumPartials", [&](auto zero) {
    using T = decltype(zero);
    std::array<const T*, kMaxPartials> from{};
    for (size_t i = 0; i < static_cast<size_t>(partials.count); ++i) {
      CHECK_EQ(partials.tensor[i].NumElements(), out.NumElements());
      from[i] = partials.tensor[i].Data<T>();
    }
    pool_->ForRanges(out.NumElements(), kElementGrain, [&](int64_t begin, int64_t end) {
      SumRanges(out.Data<T>(), from.data(), partials.count, begin, end);
    });
  });
}

void CpuVector::Cast(Stream& /*stream*/, const Tensor& to, const Tensor& from) const {
  CHECK_EQ(to.NumElements(), from.NumElements());
  pool_->ForRanges(to.NumElements(), kElementGrain, [&](int64_t begin, int64_t end) {
    if (to.dtype == from.dtype) {
      const int64_t size = SizeOf(to.dtype);
      std::memcpy(static_cast<char*>(to.data) + begin * size,
                  static_cast<const char*>(from.data) + begin * size,
                  static_cast<size_t>((end - begin) * size));
    } else {
      CastRange(to, from, begin, end);
    }
  });
}

void CpuVector::Fill(Stream& /*stream*/, const Tensor& to, double value) const {
  const auto single = static_cast<float>(value);
  uint16_t half = 0;
  switch (to.dtype) {
    case DType::kF32:
      return FillTyped(*pool_, to, single);
    case DType::kF64:
      return FillTyped(*pool_, to, value);
    case DType::kBf16:
      FloatToBf16(&single, &half, 1);
      return FillTyped(*pool_, to, half);
    case DType::kF16:
      FloatToF16(&single, &half, 1);
      return FillTyped(*pool_, to, half);
    case DType::kI32:
      return FillTyped(*pool_, to, static_cast<int32_t>(value));
    case DType::kI64:
      return FillTyped(*pool_, to, static_cast<int64_t>(value));
    case DType::kU8:
      return FillTyped(*pool_, to, static_cast<uint8_t>(value));
  }
}

void CpuVector::RowSum(Stream& /*stream*/, const Tensor& x, GradMode mode,
                       const Tensor& out) const {
  const int64_t rows = x.shape[0], columns = x.shape[1];
  CHECK_EQ(out.NumElements(), columns);
  ForFloatType(x.dtype, "RowSum", [&](auto zero) {
    using T = decltype(zero);
    pool_->ForRanges(
        columns, std::max<int64_t>(16, RowGrain(rows)), [&](int64_t begin, int64_t end) {
          ColumnSums(x.Data<T>(), {.rows = rows, .stride = columns, .begin = begin, .end = end},
                     mode == GradMode::kAdd, out.Data<T>());
        });
  });
}

}  // namespace mt::kernels::cpu
