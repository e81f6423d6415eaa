// Helpers for tests of the custom GEMMs, which an imported tuning table selects, so that nothing is
// timed: shapes that end within a tile, that have fewer tiles than thread blocks and many more,
// more steps than stages, and three bands of features of which the last is narrower. Small enough
// for the sanitizers.
#pragma once

#include <string>

#include "kernels/cuda/gemm/gemm_key.h"
#include "kernels/ops/tuning.h"
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {

class CustomGemmTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    gpu_ = LoadCudaBackend(TestConfig()).value();
    if (!Choose({.transpose_a = true, .m = 8, .n = 2, .k = 8, .epilogue = Epilogue::kBias})) {
      GTEST_SKIP() << "this GPU has no such kernel: " << gpu_->tuning()->Identity();
    }
    ++chosen_;
  }
  // Makes the custom kernel, or another form, the choice for this GEMM; false where the device does
  // not have it.
  bool Choose(GemmKey key, Form form = Form::kCustom) const {
    key.in = key.out = GetParam();
    TuningTable& table = *gpu_->tuning();
    return table.Import(table.Identity(), {{ToText({.form = true, .gemm = key}), Name(form)}})
        .value()
        .empty();
  }
  // How many entries the table has, apart from SetUp's.
  size_t Entries() const { return gpu_->tuning()->Entries().size() - chosen_; }
  Backend& At(Side side) const { return side == Side::kGpu ? *gpu_ : BackendOf(side); }

  std::unique_ptr<Backend> gpu_;

 private:
  size_t chosen_ = 0;
};

struct Shape3 {
  int64_t tokens, features, inner;
  std::string Text() const {
    return fmt::format("T {} features {} inner {}", tokens, features, inner);
  }
};

inline constexpr Shape3 kCustomGemmShapes[] = {{1, 8, 8},        {192, 256, 64},
                                               {193, 264, 72},   {400, 520, 328},
                                               {3000, 2056, 40}, {200, 2304, 4096}};

}  // namespace mt::kernels::cuda
