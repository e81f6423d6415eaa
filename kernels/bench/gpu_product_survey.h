// How good the table of products is: for each product of a GPT layer and of the head, all that
// cuBLASLt offers raced against what the table chose, and both forms of what has two. Hot, operands
// from memory, medians; the bar is 2 % of the fastest.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "kernels/ops/tuning.h"

namespace mt::kernels::bench {

// One thread.
class GpuProductSurvey {
 public:
  // `backend` has a tuning table and outlives this.
  explicit GpuProductSurvey(Backend* backend)
      : linear_(backend->linear()), table_(*backend->tuning()) {}

  // A GPT-2-like layer in bf16, biases everywhere: `tokens` of a microbatch, hidden size h.
  void Layer(const std::string& model, int64_t tokens, int64_t h);
  // A Llama-like layer's products around SwiGLU: forward of the first, input gradient of the
  // second.
  void GatedBlock(const std::string& model, int64_t tokens, int64_t h, int64_t ffn);
  // The head on a chunk of tokens.
  void Head(const std::string& model, int64_t tokens, int64_t h);
  // Says how many products were looked at and how far the choices are from the fastest; returns how
  // many take more than 2 % longer.
  int Summary() const;

 private:
  // Plans the op, lets the table choose and prints a line for each key that is new.
  template <class Args>
  void Op(const std::string& name, double flops, const Args& args);
  // Returns what was chosen.
  std::string Product(const std::string& name, double flops, const std::vector<TuningTime>& times);

  const LinearOps& linear_;
  TuningTable& table_;
  std::vector<double> ratios_;  // chosen over fastest
};

}  // namespace mt::kernels::bench
