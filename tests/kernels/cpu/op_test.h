// Helpers of the op tests: backends by thread count, arrays that own a tensor's memory, random
// contents, and the check of gradients against central differences.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/core/tensor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

// One backend per thread count for the whole program.
inline Backend& Cpu(int num_threads) {
  static std::map<int, std::unique_ptr<Backend>> backends;
  std::unique_ptr<Backend>& backend = backends[num_threads];
  if (backend == nullptr) {
    auto made = MakeCpuBackend({.num_threads = num_threads});
    CHECK(made.ok()) << made.status().ToString();
    backend = *std::move(made);
  }
  return *backend;
}

// A stream of any CPU backend: calls run at once.
inline Stream& AnyStream() {
  static const std::unique_ptr<Stream> stream = Cpu(1).device().CreateStream(StreamPriority::kLow);
  return *stream;
}

// A tensor with its memory. Contents start as `value`.
template <class T>
class Array {
 public:
  explicit Array(Shape shape, T value = {})
      : shape_(shape), data_(static_cast<size_t>(shape.NumElements()), value) {}
  Tensor tensor() { return {data_.data(), DTypeOf<T>(), shape_}; }
  int64_t size() const { return static_cast<int64_t>(data_.size()); }
  T& operator[](int64_t i) { return data_[static_cast<size_t>(i)]; }
  T operator[](int64_t i) const { return data_[static_cast<size_t>(i)]; }
  T* data() { return data_.data(); }
  const T* data() const { return data_.data(); }
  const Shape& shape() const { return shape_; }
  friend bool operator==(const Array& a, const Array& b) { return a.data_ == b.data_; }

 private:
  Shape shape_;
  std::vector<T> data_;
};

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A value as T, rounded once to f32 and once more where T has 16 bits.
template <class T>
T ValueOf(double x) {
  if constexpr (SizeOf(DTypeOf<T>()) == 2) {
    T out;
    Narrow(static_cast<float>(x), &out);
    return out;
  } else {
    return static_cast<T>(x);
  }
}

// Uniform in [-scale, scale), the same in every run and on every platform.
class Uniform {
 public:
  explicit Uniform(uint32_t seed) : engine_(seed) {}
  double Next(double scale = 1) { return scale * (static_cast<double>(engine_()) * 0x1p-31 - 1.0); }
  template <class T>
  Array<T> Make(Shape shape, double scale = 1) {
    Array<T> out(shape);
    for (int64_t i = 0; i < out.size(); ++i) out[i] = ValueOf<T>(Next(scale));
    return out;
  }

 private:
  std::mt19937 engine_;
};

template <class To, class From>
Array<To> Convert(const Array<From>& from) {
  Array<To> out(from.shape());
  for (int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<To>(from[i]);
  return out;
}

template <class T>
double LargestOf(const Array<T>& a) {
  double largest = 0;
  for (int64_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]}));
  return largest;
}

// Every element within `tolerance` of the expected one, relative to the largest expected element.
template <class T, class U>
void ExpectNear(const Array<T>& actual, const Array<U>& expected, double tolerance,
                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double allowed = tolerance * LargestOf(expected);
  for (int64_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(double{actual[i]}, double{expected[i]}, allowed) << what << " element " << i;
  }
}

template <class T>
double WeightedSum(const Array<T>& weights, const Array<T>& values) {
  double sum = 0;
  for (int64_t i = 0; i < values.size(); ++i) sum += double{weights[i]} * double{values[i]};
  return sum;
}

// Holds `gradient` against central differences of `loss` in every element of `x`, relative to the
// gradient's largest element. With a step of 1e-5 the differences are good to about 1e-9.
inline void ExpectGradient(Array<double>& x, const std::function<double()>& loss,
                           const Array<double>& gradient, const std::string& what) {
  constexpr double kStep = 1e-5, kTolerance = 1e-7;
  ASSERT_EQ(x.size(), gradient.size()) << what;
  const double allowed = kTolerance * std::max(LargestOf(gradient), 1e-3);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    x[i] = value + kStep;
    const double up = loss();
    x[i] = value - kStep;
    const double down = loss();
    x[i] = value;
    ASSERT_NEAR((up - down) / (2 * kStep), gradient[i], allowed) << what << " element " << i;
  }
}

inline Array<int32_t> Ints(Shape shape, const std::function<int64_t(int64_t)>& value) {
  Array<int32_t> out(shape);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(value(i));
  return out;
}

// Caller-owned scratch of an op.
class Scratch256 {
 public:
  explicit Scratch256(int64_t bytes)
      : buffer_(Cpu(1).device().Allocate(bytes, MemoryKind::kDevice)) {}
  Workspace workspace() { return {buffer_->data(), buffer_->bytes()}; }

 private:
  std::unique_ptr<DeviceBuffer> buffer_;
};

}  // namespace mt::kernels::cpu
