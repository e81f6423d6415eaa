// Factors are whole numbers of half of the type's digits less those of the longest sum, so that no
// sum is rounded, whatever its order and whether multiply-adds are fused.
#include "kernels/cpu/blas_check.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cblas-openblas.h>
#include <fmt/format.h>

namespace mt::kernels::cpu {
namespace {

struct Shape {
  int64_t m, n, k;
};

// One side of 1 is a matrix times a vector. Up to a million multiply-adds some processors have
// kernels of their own; the last shape is beyond.
constexpr Shape kShapes[] = {{1, 1, 1},    {1, 48, 33},  {64, 1, 31},   {2, 3, 5},     {7, 17, 9},
                             {16, 16, 16}, {33, 49, 65}, {13, 130, 24}, {130, 97, 101}};
struct Weights {
  double alpha, beta;
};
constexpr Weights kWeights[] = {{1, 0}, {1, 1}, {-0.5, 2}};
constexpr int64_t kGap = 3;  // elements between the rows of every matrix

// Whole numbers in [-limit, limit], the same in every run.
class Numbers {
 public:
  explicit Numbers(int64_t limit) : limit_(limit) {}
  double Next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    const auto width = static_cast<uint64_t>(2 * limit_ + 1);
    return static_cast<double>(static_cast<int64_t>((state_ >> 33U) % width) - limit_);
  }

 private:
  const int64_t limit_;
  uint64_t state_ = 20261129;
};

// 2^7 squared, times 2 to the 7 for 101 terms, fits 24 bits with the factors of kWeights; so does
// 2^21 squared in 53.
template <class T>
constexpr int64_t kLimit = std::is_same_v<T, float> ? 127 : (int64_t{1} << 21) - 1;

// Rows with kGap NaNs behind each.
template <class T>
struct Matrix {
  Matrix(int64_t num_rows, int64_t num_columns)
      : rows(num_rows),
        columns(num_columns),
        stride(num_columns + kGap),
        values(static_cast<size_t>(rows * stride), std::numeric_limits<T>::quiet_NaN()) {}
  T& At(int64_t row, int64_t column) { return values[static_cast<size_t>(row * stride + column)]; }
  const T& At(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * stride + column)];
  }
  Matrix Transposed() const {
    Matrix out(columns, rows);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) out.At(column, row) = At(row, column);
    return out;
  }

  int64_t rows, columns, stride;
  std::vector<T> values;
};

template <class T>
Matrix<T> Filled(int64_t rows, int64_t columns, Numbers* numbers) {
  Matrix<T> out(rows, columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      out.At(row, column) = static_cast<T>(numbers->Next());
  return out;
}

// In the order in which memory is read fastest; it does not matter.
template <class T>
Matrix<T> Product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> out(a.rows, b.columns);
  for (int64_t row = 0; row < a.rows; ++row) {
    T* const c = &out.At(row, 0);
    for (int64_t column = 0; column < b.columns; ++column) c[column] = 0;
    for (int64_t term = 0; term < a.columns; ++term) {
      const T factor = a.At(row, term);
      const T* const from = &b.At(term, 0);
      for (int64_t column = 0; column < b.columns; ++column) c[column] += factor * from[column];
    }
  }
  return out;
}

template <class T>
bool SameBits(T one, T other) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<Bits>(one) == std::bit_cast<Bits>(other);
}

// The first element that is not as it has to be, gaps included; empty: none.
template <class T>
std::string FirstFault(const Matrix<T>& is, const Matrix<T>& has_to_be) {
  for (int64_t row = 0; row < is.rows; ++row) {
    for (int64_t column = 0; column < is.columns; ++column) {
      // Zeros of either sign are equal; NaN is equal to nothing.
      if (is.At(row, column) == has_to_be.At(row, column)) continue;
      return fmt::format("row {}, column {} is {}, and has to be {}", row, column,
                         is.At(row, column), has_to_be.At(row, column));
    }
    for (int64_t column = is.columns; column < is.stride; ++column) {
      if (SameBits(is.At(row, column), has_to_be.At(row, column))) continue;
      return fmt::format("{} was written behind row {}", is.At(row, column), row);
    }
  }
  return "";
}

// Both forms of a shape's factors, and their product.
template <class T>
struct Problem {
  Problem(const Shape& size, Numbers* numbers)
      : shape(size),
        a(Filled<T>(size.m, size.k, numbers)),
        b(Filled<T>(size.k, size.n, numbers)),
        c(Filled<T>(size.m, size.n, numbers)),
        a_transposed(a.Transposed()),
        b_transposed(b.Transposed()),
        product(Product(a, b)) {}

  Shape shape;
  Matrix<T> a, b, c;
  Matrix<T> a_transposed, b_transposed;
  Matrix<T> product;
};

template <class T, class Call>
std::string Check(const Problem<T>& problem, const Call& call, int transposes,
                  const Weights& weights) {
  const bool transpose_a = (transposes & 1) != 0;
  const bool transpose_b = (transposes & 2) != 0;
  const Matrix<T>& a = transpose_a ? problem.a_transposed : problem.a;
  const Matrix<T>& b = transpose_b ? problem.b_transposed : problem.b;
  Matrix<T> has_to_be(problem.shape.m, problem.shape.n);
  Matrix<T> c = has_to_be;  // NaN, which beta 0 must not read
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t column = 0; column < c.columns; ++column) {
      const T before = weights.beta == 0 ? T(0) : problem.c.At(row, column);
      if (weights.beta != 0) c.At(row, column) = before;
      has_to_be.At(row, column) = static_cast<T>(weights.alpha) * problem.product.At(row, column) +
                                  static_cast<T>(weights.beta) * before;
    }
  }
  call(GemmArgs<T>{.transpose_a = transpose_a,
                   .transpose_b = transpose_b,
                   .m = problem.shape.m,
                   .n = problem.shape.n,
                   .k = problem.shape.k,
                   .alpha = static_cast<T>(weights.alpha),
                   .a = a.values.data(),
                   .lda = a.stride,
                   .b = b.values.data(),
                   .ldb = b.stride,
                   .beta = static_cast<T>(weights.beta),
                   .c = c.values.data(),
                   .ldc = c.stride});
  const std::string fault = FirstFault(c, has_to_be);
  if (fault.empty()) return "";
  return fmt::format("{}gemm m {}, n {}, k {}{}{}, alpha {}, beta {}: {}",
                     std::is_same_v<T, float> ? "s" : "d", problem.shape.m, problem.shape.n,
                     problem.shape.k, transpose_a ? ", A transposed" : "",
                     transpose_b ? ", B transposed" : "", weights.alpha, weights.beta, fault);
}

template <class T, class Call>
std::string CheckAll(const Call& call) {
  Numbers numbers(kLimit<T>);
  for (const Shape& shape : kShapes) {
    const Problem<T> problem(shape, &numbers);
    for (int transposes = 0; transposes < 4; ++transposes) {
      for (const Weights& weights : kWeights) {
        std::string fault = Check(problem, call, transposes, weights);
        if (!fault.empty()) return fault;
      }
    }
  }
  return "";
}

}  // namespace

std::string CheckBlas(const BlasCalls& calls) {
  std::string fault = CheckAll<float>(calls.f32);
  return fault.empty() ? CheckAll<double>(calls.f64) : fault;
}

std::string OpenBlasVersion() {
  // "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64"
  const std::string_view config = openblas_get_config();
  const size_t name = config.find(' ');
  if (name == std::string_view::npos) return std::string(config);
  return std::string(config.substr(0, config.find(' ', name + 1)));
}

}  // namespace mt::kernels::cpu
