// The optimizer under 16-bit weights: masters, moments and gradients are f32, so the master takes
// the very steps of an f32 run with the same gradients; the weights are the master rounded once.
#include "kernels/ops/update.h"
#include "tests/kernels/cpu/half_test.h"

namespace mt::kernels::cpu {
namespace {

template <class H>
class HalfUpdateTest : public testing::Test {};
TYPED_TEST_SUITE(HalfUpdateTest, HalfTypes);

constexpr int64_t kElements = 10007;
constexpr int kSteps = 100;

StepConstants Constants() {
  return {.max_lr = 1e-2,
          .min_lr = 1e-3,
          .warmup_samples = 10,
          .decay_samples = 200,
          .weight_decay = 0.1,
          .clip_grad = 1,
          .batch_samples = 1,
          .nominal_tokens = 4};
}

template <class H>
void ExpectRoundedCopy(const Array<H>& copy, const Array<float>& master) {
  for (int64_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(copy[i].bits, ValueOf<H>(double{master[i]}).bits) << i;
  }
}

TYPED_TEST(HalfUpdateTest, AdamWMastersEqualF32BitForBitOver100Steps) {
  Uniform random(101);
  Array<float> master = random.Make<float>({kElements}), m({kElements}), v({kElements}),
               weights = master, m32({kElements}), v32({kElements});
  Array<TypeParam> copy({kElements});
  StepScalars scalars;
  int64_t copies_that_stood_still = 0;
  for (int step = 0; step < kSteps; ++step) {
    Array<float> gradient = random.Make<float>({kElements}, 0.01);
    const EndOfStep vector{
        .sum_squares = 3, .nonfinite = step == 40 ? 1.0 : 0.0, .loss = 1, .tokens = 4};
    Cpu(1).update().Advance(AnyStream(), &scalars, &vector, Constants());
    const Array<TypeParam> before = copy;
    Cpu(2).update().AdamW(AnyStream(), {.gradient = gradient.tensor(),
                                        .master = master.tensor(),
                                        .m = m.tensor(),
                                        .v = v.tensor(),
                                        .model_copy = copy.tensor(),
                                        .decay = true,
                                        .scalars = &scalars});
    Cpu(1).update().AdamW(AnyStream(), {.gradient = gradient.tensor(),
                                        .master = weights.tensor(),
                                        .m = m32.tensor(),
                                        .v = v32.tensor(),
                                        .decay = true,
                                        .scalars = &scalars});
    ASSERT_TRUE(master == weights && m == m32 && v == v32) << "step " << step;
    if (step == 40) {
      ASSERT_TRUE(copy == before) << "a skipped step writes nothing";
    } else {
      ExpectRoundedCopy(copy, master);
    }
    for (int64_t i = 0; i < kElements; ++i) copies_that_stood_still += copy[i] == before[i] ? 1 : 0;
  }
  // Most of bf16's steps are below its last place: without a master they would be lost.
  EXPECT_GT(copies_that_stood_still, 0);
}

TYPED_TEST(HalfUpdateTest, SgdMastersEqualF32BitForBitOver100Steps) {
  Uniform random(102);
  Array<float> master = random.Make<float>({kElements}), momentum({kElements}), weights = master,
               momentum32({kElements});
  Array<TypeParam> copy({kElements});
  StepScalars scalars;
  scalars.lr = 0.01;
  scalars.weight_decay = 0.1;
  for (int step = 0; step < kSteps; ++step) {
    Array<float> gradient = random.Make<float>({kElements}, 0.1);
    SgdArgs args{.gradient = gradient.tensor(),
                 .master = master.tensor(),
                 .momentum = momentum.tensor(),
                 .model_copy = copy.tensor(),
                 .decay = true,
                 .scalars = &scalars};
    Cpu(2).update().Sgd(AnyStream(), args);
    args.master = weights.tensor();
    args.momentum = momentum32.tensor();
    args.model_copy = {};
    Cpu(1).update().Sgd(AnyStream(), args);
  }
  EXPECT_TRUE(master == weights && momentum == momentum32);
  ExpectRoundedCopy(copy, master);
}

}  // namespace
}  // namespace mt::kernels::cpu
