// One GPT-2 layer, the output layer and the optimizer update as the engine runs them, made of op
// calls: forward and backward of one microbatch in fp32, with the time of each kind of call.
// Legend: s sequence length, b microbatch size, h hidden size, a heads, v vocabulary size.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"

namespace mt::kernels::bench {

struct GptShape {
  int64_t s = 1024, b = 1, h = 768, a = 12, v = 50304;
  double dropout = 0;
};

// Seconds per kind of call.
using Phases = std::map<std::string, double>;

class GptLayer {
 public:
  // `backend` is not owned and must outlive this object.
  GptLayer(Backend* backend, const GptShape& shape);

  // Runs one layer forward and backward, and AdamW over its weights.
  Phases RunLayer();
  // Runs the head: final norm, logits, loss, dx, dw; and AdamW over the table.
  Phases RunHead();

  int64_t layer_parameters() const { return 12 * shape_.h * shape_.h + 13 * shape_.h; }

 private:
  Tensor Make(Shape shape, DType dtype = DType::kF32);
  Workspace Scratch(int64_t bytes);
  void Norm(const Tensor& branch, const Tensor& bias, const Tensor& residual, const Tensor& out,
            const Tensor& y);
  void NormGrad(const Tensor& dy, const Tensor& out, const Tensor& dresidual);
  void Forward(Phases* phases);
  void Backward(Phases* phases);
  void Update(const Tensor& weights, Phases* phases);
  Dropout MakeDropout() const;

  Backend* const backend_;
  const GptShape shape_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  Tensor x_, out1_, y1_, qkv_, o_, proj_, out2_, y2_, pre_, act_, fc2_, dx_, dbranch_, dact_, dpre_;
  Tensor dqkv_, do_, lse_, mean_, rstd_, gain_, shift_, dgain_, dshift_, dbias_, samples_,
      positions_;
  Tensor wqkv_, wproj_, wfc1_, wfc2_, bqkv_, bproj_, bfc1_, bfc2_, dwqkv_, dwproj_, dwfc1_, dwfc2_;
  Tensor dbqkv_, dbfc1_, table_, dtable_, logits_, labels_, weight_, stats_, sums_;
  Tensor m_, v_;
  Workspace scratch_;
  StepScalars scalars_;
};

}  // namespace mt::kernels::bench
