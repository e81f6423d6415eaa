// mt_gpu_kernel_bench [filter]: what each op reaches on a GPU against the GPU's ceilings: the rate
// of a device copy for memory-bound ops (each operand counted once), the rate of an 8192^3 bf16
// GEMM (G) for GEMMs, cuDNN's rate for the custom attention. mt_gpu_kernel_bench --products: how
// far the tuning table's choices are from the fastest alternative. Columns and exit codes:
// kernels/README.md.
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "kernels/bench/gpu_gemm_survey.h"
#include "kernels/bench/gpu_op_benches.h"
#include "kernels/cuda/module.h"

namespace mt::kernels::bench {
namespace {

constexpr int kBelowBar = 3;  // exit code if a line was below its bar, or a choice too slow

// Surveys the models with which speed is measured, one microbatch of tokens each; returns the
// number of choices that are too slow.
int SurveyGemms(Backend* backend) {
  fmt::print("{}\n{}\n", backend->device().Describe(), backend->tuning()->Identity());
  GpuGemmSurvey survey(backend);
  constexpr int64_t kHeadTokens = 8192;
  for (const auto& [model, tokens, h] :
       {std::tuple<const char*, int64_t, int64_t>{"124M", 32768, 768},
        {"1.3B", 16384, 2048},
        {"350M", 65536, 1024},
        {"1558M", 16384, 1600}}) {
    survey.Layer(model, tokens, h);
    survey.Head(model, kHeadTokens, h);
  }
  survey.GatedBlock("TinyLlama", 16384, 2048, 5632);
  return survey.Summary();
}

int Main(int argc, char** argv) {
  if (argc > 2) {
    fmt::print(stderr, "usage: mt_gpu_kernel_bench [--products | part of a line's name]\n");
    return 2;
  }
  const auto backend = cuda::LoadCudaBackend({});
  if (!backend.ok()) {
    fmt::print(stderr, "mt_gpu_kernel_bench: {}\n", base::Message(backend.status()));
    return 1;
  }
  if (argc == 2 && std::string_view(argv[1]) == "--products") {
    return SurveyGemms(backend->get()) == 0 ? 0 : kBelowBar;
  }
  GpuOpBenches ops(backend->get(), argc == 2 ? argv[1] : "");
  ops.Ceilings();
  for (const auto& [rows, h] : {std::pair<int64_t, int64_t>{32768, 768}, {16384, 2048}}) {
    for (const double dropout : {0.0, 0.1}) ops.Norms(rows, h, dropout);
    ops.Elementwise(rows, h);
    ops.Gemms(rows, h);
    ops.GatedGemms(rows, h);
  }
  ops.Rope();
  ops.Embedding();
  ops.Loss();
  ops.Updates();
  ops.Attention({.b = 32, .s = 1024, .a = 12, .d = 64});
  ops.Attention({.b = 8, .s = 2048, .a = 16, .d = 128});
  return ops.Summary() == 0 ? 0 : kBelowBar;
}

}  // namespace
}  // namespace mt::kernels::bench

int main(int argc, char** argv) { return mt::kernels::bench::Main(argc, argv); }
