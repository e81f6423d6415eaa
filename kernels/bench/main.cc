// mt_kernel_bench [--threads N | --cpu-time]: what each op family reaches on this machine, in
// GFLOP/s or GB/s (bytes that must move at least), the GEMM next to bare OpenBLAS, and where a
// gpt2-124m step spends its time. kernels/README.md explains the columns.
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include <cblas-openblas.h>
#include <fmt/format.h>

#include "kernels/bench/gpt_layer.h"
#include "kernels/bench/op_benches.h"
#include "kernels/bench/timing.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::kernels::bench {
namespace {

// Returns the fastest time of each phase over a few runs.
template <class Run>
Phases Fastest(const Run& run) {
  Phases best = run();
  for (int i = 0; i < 4; ++i) {
    for (const auto& [name, seconds] : run()) best[name] = std::min(best[name], seconds);
  }
  return best;
}

void PrintStep(Backend* backend) {
  constexpr int kLayers = 12;
  GptLayer gpt(backend, {});
  Phases step = Fastest([&] { return gpt.RunHead(); });
  for (const auto& [name, seconds] : Fastest([&] { return gpt.RunLayer(); })) {
    step[name] += kLayers * seconds;
  }
  double total = 0;
  for (const auto& [name, seconds] : step) total += seconds;
  fmt::print("\ngpt2-124m step: 12 layers, head, update; s 1024, b 1, fp32: {:.0f} ms\n",
             total * 1e3);
  for (const auto& [name, seconds] : step) {
    fmt::print("  {:<10} {:>9.1f} ms {:>5.1f} %\n", name, seconds * 1e3, 100 * seconds / total);
  }
  fmt::print(
      "in matrix products: {:.1f} % (linear layers; attention's tiles are products too, not "
      "counted)\n",
      100 * step["linear"] / total);
}

int Main(int argc, char** argv) {
  int threads = 1;
  bool cpu_time = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--threads" && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else if (std::string_view(argv[i]) == "--cpu-time") {
      cpu_time = true;
    } else {
      fmt::print(stderr, "usage: mt_kernel_bench [--threads N | --cpu-time]\n");
      return 2;
    }
  }
  if (cpu_time && threads != 1) {
    fmt::print(stderr, "mt_kernel_bench: --cpu-time measures one thread\n");
    return 2;
  }
  if (cpu_time) UseProcessorTime();
  const auto backend = cpu::MakeCpuBackend({.num_threads = threads});
  if (!backend.ok()) {
    fmt::print(stderr, "mt_kernel_bench: {}\n", base::Message(backend.status()));
    return 1;
  }
  fmt::print("{}\n", (*backend)->device().Describe());
  PrintHeader();
  {
    OpBenches ops(backend->get());
    ops.Gemms(threads);
    for (const double dropout : {0.0, 0.1}) ops.Attention(dropout);
    for (const double dropout : {0.0, 0.1}) ops.Norms(dropout);
    ops.Elementwise();
    ops.LossEmbeddingUpdate();
    ops.Variants();
    for (const DType dtype : {DType::kBf16, DType::kF16}) ops.Halves(dtype);
  }
  PrintStep(backend->get());
  return 0;
}

}  // namespace
}  // namespace mt::kernels::bench

int main(int argc, char** argv) { return mt::kernels::bench::Main(argc, argv); }
