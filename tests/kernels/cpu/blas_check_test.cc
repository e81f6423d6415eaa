// The check of the BLAS, with stand-ins that are wrong in one element.
#include "kernels/cpu/blas_check.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

namespace mt::kernels::cpu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(BlasCheckTest, ThisMachinesMultipliesRightly) {
  InitOpenBlas();
  EXPECT_EQ(CheckBlas(), "");
  EXPECT_THAT(OpenBlasVersion(), StartsWith("OpenBLAS 0."));
}

TEST(BlasCheckTest, OneWrongElementIsFoundInEitherType) {
  BlasCalls calls;
  calls.f32 = [](const GemmArgs<float>& args) {
    Gemm(args);
    if (args.m == 130) args.c[97 * args.ldc + 41] += 1;
  };
  EXPECT_THAT(CheckBlas(calls), StartsWith("sgemm m 130, n 97, k 101, alpha 1, beta 0: row 97, "
                                           "column 41 is "));
  calls = {};
  // A last bit that fp32 would not have.
  calls.f64 = [](const GemmArgs<double>& args) {
    Gemm(args);
    if (args.transpose_a && args.transpose_b && args.m == 7) {
      double& element = args.c[6 * args.ldc + 16];
      element = std::nextafter(element, std::numeric_limits<double>::infinity());
    }
  };
  EXPECT_THAT(CheckBlas(calls),
              StartsWith("dgemm m 7, n 17, k 9, A transposed, B transposed, alpha 1, beta 0: row "
                         "6, column 16 is "));
}

TEST(BlasCheckTest, WhatIsReadOrWrittenBesideTheMatrixIsFound) {
  BlasCalls calls;
  calls.f32 = [](const GemmArgs<float>& args) {
    Gemm(args);
    args.c[args.n] = 5;
  };
  EXPECT_THAT(CheckBlas(calls), HasSubstr("5 was written behind row 0"));
  // C multiplied by 0 in place of left unread.
  calls.f32 = [](const GemmArgs<float>& args) {
    GemmArgs<float> other = args;
    if (args.beta == 0) {
      for (int64_t row = 0; row < args.m; ++row)
        for (int64_t column = 0; column < args.n; ++column) args.c[row * args.ldc + column] *= 0;
      other.beta = 1;
    }
    Gemm(other);
  };
  EXPECT_THAT(CheckBlas(calls), HasSubstr("beta 0: row 0, column 0 is nan"));
}

// fp32 sums in a dgemm lose bits that the factors have.
TEST(BlasCheckTest, ADoubleThatWasCutIsFound) {
  BlasCalls calls;
  calls.f64 = [](const GemmArgs<double>& args) {
    Gemm(args);
    double& element = args.c[0];
    element = static_cast<float>(element);
  };
  EXPECT_THAT(CheckBlas(calls), StartsWith("dgemm"));
}

}  // namespace
}  // namespace mt::kernels::cpu
