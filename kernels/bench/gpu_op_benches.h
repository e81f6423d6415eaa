// Benchmarks of the CUDA backend: one line per op at the shapes of GPT-2 124M (32768 tokens, h 768)
// and GPT-3 1.3B (16384 tokens, h 2048), in bf16: time, rate, ceiling, their ratio, and whether the
// line reaches its bar if it has one. Random contents, medians.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/backend.h"

namespace mt::kernels::bench {

struct AttentionBench {
  int64_t b = 0, s = 0, a = 0, d = 0;
};

class GpuOpBenches {
 public:
  // `backend` is not owned and must outlive this object. Only lines whose name contains `filter`
  // are run.
  GpuOpBenches(Backend* backend, std::string_view filter);

  // Measures the ceilings: the rate of a device copy, and G, the rate of an 8192^3 GEMM. Must come
  // first, because the other ratios refer to them.
  void Ceilings();
  void Norms(int64_t rows, int64_t h, double dropout);
  void Elementwise(int64_t rows, int64_t h);
  void Gemms(int64_t tokens, int64_t h);
  void GatedGemms(int64_t tokens, int64_t h);
  void Rope();
  void Embedding();
  void Loss();
  void Updates();
  void Attention(const AttentionBench& z);
  // Prints how many lines were below their bar and returns that number.
  int Summary() const;

 private:
  using Work = std::function<void()>;
  Tensor Make(Shape shape, DType dtype = DType::kBf16);
  Tensor Ints(const std::vector<int32_t>& values);
  Workspace Scratch(int64_t bytes);
  void Free() { buffers_.clear(); }
  bool Wanted(const std::string& name) const;
  double SecondsPerCall(const Work& work, int calls);
  // Returns how many calls make a batch of 20 ms, long enough that host time vanishes.
  int CallsOfABatch(const Work& work);
  // Returns the median of seven batches, in seconds per call.
  double MedianSeconds(const Work& work);
  // Print a line of a memory-bound or a compute-bound op. Bars are rates in the line's unit per
  // second; 0: none.
  void Bytes(const std::string& name, double bytes, const Work& work, double bar = 0);
  // Returns the rate in FLOP/s, or 0 if the line was not wanted.
  double Flops(const std::string& name, double flops, double ceiling, const Work& work,
               double bar = 0);
  // Ends a line with the verdict on its bar; prints nothing without a bar.
  void Judge(double reached, double bar, const std::string& bar_text);
  struct AttentionRates {
    double forward = 0, backward = 0;
  };
  AttentionRates AttentionPair(const AttentionBench& z, DType dtype, bool custom,
                               const AttentionRates& bars);
  // Prints a line: the op as it is called against the kernels of cuDNN's plan alone, in the same
  // process.
  void AgainstItsPlan(const std::string& name, const Work& work);

  Backend& backend_;
  const std::string filter_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  double copy_rate_ = 0;  // bytes per second, read and written
  double gemm_rate_ = 0;  // G
  int bars_ = 0, below_ = 0;
};

}  // namespace mt::kernels::bench
