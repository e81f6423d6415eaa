// Elementwise ops, conversions and column sums: dispatch on dtypes and the split over threads.
// Column sums are split by columns, so each sum runs over the rows in order on one thread.
#include <algorithm>
#include <array>
#include <type_traits>

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
  T* const data = to.Data<T>();
  pool.ForRanges(to.NumElements(), kElementGrain,
                 [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, value); });
}

template <class T>
void FillHalf(ThreadPool& pool, const Tensor& to, float value) {
  T narrow;
  ConvertRange(&narrow, &value, 1);
  FillTyped(pool, to, narrow);
}

template <class To, class From>
void CastTyped(ThreadPool& pool, const Tensor& to, const Tensor& from) {
  To* const out = to.Data<To>();
  const From* in = from.Data<From>();
  pool.ForRanges(to.NumElements(), kElementGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<To, From>) {
      std::copy(in + begin, in + end, out + begin);
    } else {
      ConvertRange(out + begin, in + begin, end - begin);
    }
  });
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
  ForFloatType(to.dtype, "Cast", [&](auto to_zero) {
    ForFloatType(from.dtype, "Cast", [&](auto from_zero) {
      CastTyped<decltype(to_zero), decltype(from_zero)>(*pool_, to, from);
    });
  });
}

void CpuVector::Fill(Stream& /*stream*/, const Tensor& to, double value) const {
  const auto single = static_cast<float>(value);
  switch (to.dtype) {
    case DType::kF32:
      return FillTyped(*pool_, to, single);
    case DType::kF64:
      return FillTyped(*pool_, to, value);
    case DType::kBf16:
      return FillHalf<Bf16>(*pool_, to, single);
    case DType::kF16:
      return FillHalf<F16>(*pool_, to, single);
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
    using S = decltype(zero);
    pool_->ForRanges(
        columns, std::max<int64_t>(16, RowGrain(rows)), [&](int64_t begin, int64_t end) {
          ColumnSums(x.Data<S>(), {.rows = rows, .stride = columns, .begin = begin, .end = end},
                     mode == GradMode::kAdd, out.Data<Compute<S>>());
        });
  });
}

}  // namespace mt::kernels::cpu
