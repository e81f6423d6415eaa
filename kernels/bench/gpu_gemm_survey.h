// A survey of the tuning table's quality: for each GEMM of a GPT layer and of the output layer, all
// algorithms of cuBLASLt race against the table's choice, and so do the forms of GEMMs that have
// several. Hot device, operands from memory, medians; a choice may take 2 % longer than the
// fastest.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "kernels/ops/tuning.h"

namespace mt::kernels::bench {

// Used by one thread.
class GpuGemmSurvey {
 public:
  // `backend` must have a tuning table; it is not owned and must outlive this object.
  explicit GpuGemmSurvey(Backend* backend)
      : linear_(backend->linear()), table_(*backend->tuning()) {}

  // The GEMMs of a GPT-2-like layer in bf16 with biases: `tokens` of a microbatch, hidden size h.
  void Layer(const std::string& model, int64_t tokens, int64_t h);
  // The GEMMs around SwiGLU in a Llama-like layer: forward of fc1, input gradient of fc2.
  void GatedBlock(const std::string& model, int64_t tokens, int64_t h, int64_t ffn);
  // The output layer on a chunk of tokens.
  void Head(const std::string& model, int64_t tokens, int64_t h);
  // Prints how many GEMMs were surveyed and how far the choices are from the fastest; returns how
  // many take more than 2 % longer.
  int Summary() const;

 private:
  // Plans the op, lets the table choose, and prints a line for each new key.
  template <class Args>
  void Op(const std::string& name, double flops, const Args& args);
  // Prints a line and returns the chosen alternative.
  std::string PrintGemm(const std::string& name, double flops,
                        const std::vector<TuningTime>& times);

  LinearOps& linear_;
  TuningTable& table_;
  std::vector<double> ratios_;  // time of the choice / time of the fastest
};

}  // namespace mt::kernels::bench
