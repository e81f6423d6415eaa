// Elementwise ops and initial values: bits equal to the CPU's, or within one unit in the last place
// where libm or the order of a sum differs. Also division by multiplication (Divider).
#include "kernels/cuda/device/divider.h"
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

TEST(DividerTest, DividesAsTheProcessorDoes) {
  constexpr int64_t kEnd = int64_t{1} << 31;
  for (const int64_t divisor : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{8},
                                int64_t{12}, int64_t{96}, int64_t{768}, int64_t{1000},
                                int64_t{50257}, kEnd / 2 - 1, kEnd / 2, kEnd / 2 + 1, kEnd - 1}) {
    const Divider divider(divisor);
    const auto expect = [&](int64_t x) {
      if (x < 0 || x >= kEnd) return;
      uint32_t rest = 0;
      ASSERT_EQ(divider.Quotient(static_cast<uint32_t>(x), &rest), x / divisor)
          << x << " / " << divisor;
      ASSERT_EQ(rest, x % divisor) << x << " / " << divisor;
    };
    for (int64_t x = 0; x < 1000; ++x) expect(x), expect(kEnd - 1 - x);
    // Around multiples, where a rounded quotient would show.
    for (int64_t k = 1; k * divisor < kEnd; k += 1 + k / 3) {
      for (int64_t x = k * divisor - 2; x <= k * divisor + 2; ++x) expect(x);
    }
  }
}

class CudaVectorTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaVectorTest);

TEST_P(CudaVectorTest, AddToAndSumPartialsHaveTheCpusBits) {
  for (const int64_t n : {1, 7, 4096, 100003}) {
    Twins twins;
    const Operand to = twins.Random(GetParam(), {n}), from = twins.Random(GetParam(), {n});
    const Operand third = twins.Random(GetParam(), {n}), sum = Twins::Output(GetParam(), {n});
    for (const Side side : kSides) {
      Partials partials;
      partials.count = 3;
      partials.tensor[0] = to[side];
      partials.tensor[1] = from[side];
      partials.tensor[2] = third[side];
      BackendOf(side).vector().SumPartials(StreamOf(side), sum[side], partials);
      BackendOf(side).vector().AddTo(StreamOf(side), to[side], from[side]);
    }
    ExpectSameBits(sum, "sum of " + std::to_string(n));
    ExpectSameBits(to, "to of " + std::to_string(n));
  }
}

TEST_P(CudaVectorTest, CastsRoundAsTheCpuDoes) {
  for (const DType target : {DType::kF32, DType::kF64, DType::kBf16, DType::kF16}) {
    Twins twins;
    const Operand from = twins.Random(GetParam(), {100003}, 70000);
    const Operand to = Twins::Output(target, {100003});
    const Operand back = Twins::Output(GetParam(), {100003});
    for (const Side side : kSides) {
      BackendOf(side).vector().Cast(StreamOf(side), to[side], from[side]);
      BackendOf(side).vector().Cast(StreamOf(side), back[side], to[side]);
    }
    ExpectSameBits(to, std::string(Name(target)));
    ExpectSameBits(back, "back from " + std::string(Name(target)));
  }
}

TEST_P(CudaVectorTest, FillWritesEveryElement) {
  const Operand to = Twins::Output(GetParam(), {10007});
  for (const Side side : kSides) BackendOf(side).vector().Fill(StreamOf(side), to[side], 0.1);
  ExpectSameBits(to, "0.1");
}

TEST_P(CudaVectorTest, RowSumsAreTheCpusAndTheSameInEveryRun) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 5}, {777, 768}, {4096, 2304}, {300, 50257}}) {
    Twins twins;
    const Operand x = twins.Random(GetParam(), {rows, columns});
    const Operand out = Twins::Output(DType::kF32, {columns});
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      for (const Side side : kSides) {
        BackendOf(side).vector().RowSum(StreamOf(side), x[side], mode, out[side]);
      }
    }
    ExpectClose(out, Kind::kSum, DType::kF32, "columns of " + std::to_string(columns));
    const auto first = out.Bytes(Side::kGpu);
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      BackendOf(Side::kGpu)
          .vector()
          .RowSum(StreamOf(Side::kGpu), x[Side::kGpu], mode, out[Side::kGpu]);
    }
    EXPECT_EQ(out.Bytes(Side::kGpu), first);
  }
}

TEST_P(CudaVectorTest, RowSumsOfDoublesAreTheCpusBits) {
  std::vector<double> values;
  for (int i = 0; i < 26; ++i) values.push_back(std::exp2(i * 5 - 60) / 3);
  const Operand x = Twins::Of<double>({13, 2}, values), out = Twins::Of<double>({2}, {0.1, 7});
  for (const GradMode mode : {GradMode::kAdd, GradMode::kOverwrite}) {
    for (const Side side : kSides) {
      BackendOf(side).vector().RowSum(StreamOf(side), x[side], mode, out[side]);
    }
    ExpectSameBits(out, mode == GradMode::kAdd ? "add" : "overwrite");
  }
}

TEST_P(CudaVectorTest, InitialValuesAreTheCpus) {
  constexpr int64_t kManyElements = 1000003;
  for (const int64_t first : {int64_t{0}, int64_t{12345}, (int64_t{1} << 33) + 1}) {
    const Operand out = Twins::Output(GetParam(), {kManyElements});
    for (const Side side : kSides) {
      BackendOf(side).random().FillNormal(
          StreamOf(side),
          {.key = 0x1234567890ABCDEFU, .first_index = first, .std = 0.02, .out = out[side]});
    }
    const auto actual = out.Values(Side::kGpu), expected = out.Values(Side::kCpu);
    int64_t different = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      different += actual[i] != expected[i] ? 1 : 0;
      ASSERT_LE(std::abs(actual[i] - expected[i]), Spacing(GetParam()) * std::abs(expected[i]))
          << i;
    }
    EXPECT_LE(different, 2);  // about one in 1e8
  }
}

// Heads of 100 columns stored as 112, on the second of two tensor ranks.
TEST_P(CudaVectorTest, InitialValuesOfPaddedHeadsAreTheCpus) {
  constexpr int64_t kRows = 301, kWidth = 300, kColumns = 600;
  const base::Runs places{.length = 100, .stride = 112};
  const Operand out = Twins::Output(GetParam(), {places.Span(kRows * kWidth)});
  for (const Side side : kSides) {
    BackendOf(side).vector().Fill(StreamOf(side), out[side], 7);
    BackendOf(side).random().FillNormal(StreamOf(side),
                                        {.key = 0x1234567890ABCDEFU,
                                         .first_index = kWidth,
                                         .numbers = {.length = kWidth, .stride = kColumns},
                                         .places = places,
                                         .std = 0.02,
                                         .out = out[side]});
  }
  const auto actual = out.Values(Side::kGpu), expected = out.Values(Side::kCpu);
  int64_t different = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    different += actual[i] != expected[i] ? 1 : 0;
    ASSERT_LE(std::abs(actual[i] - expected[i]), Spacing(GetParam()) * std::abs(expected[i])) << i;
    ASSERT_EQ(actual[i] == 7, i % 112 >= 100) << i;
  }
  EXPECT_LE(different, 2);
}

TEST_F(CudaVectorTest, IntegersAndDoublesAddUp) {
  const Operand a = Twins::Of<int64_t>({3}, {1, int64_t{1} << 40, -5});
  const Operand b = Twins::Of<int32_t>({3}, {1, 2, -5});
  const Operand c = Twins::Of<double>({3}, {1e-300, 2, -5});
  for (const Side side : kSides) {
    for (const Operand* x : {&a, &b, &c}) {
      BackendOf(side).vector().AddTo(StreamOf(side), (*x)[side], (*x)[side]);
    }
  }
  for (const Operand* x : {&a, &b, &c}) ExpectSameBits(*x, "twice");
}

}  // namespace
}  // namespace mt::kernels::cuda
