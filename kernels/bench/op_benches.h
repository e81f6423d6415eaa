// CPU benchmarks of each op family at gpt2-124m's shapes (s 1024, b 1, h 768, v 50304), in fp32
// and, where storage makes a difference, in 16 bits. Each prints its lines. Rates of memory-bound
// ops count the bytes that must move at least.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"

namespace mt::kernels::bench {

class OpBenches {
 public:
  // `backend` is not owned and must outlive this object.
  explicit OpBenches(Backend* backend);

  // GEMMs, each next to bare OpenBLAS on `threads` threads.
  void Gemms(int threads);
  void Attention(double dropout);
  void Norms(double dropout);
  void Elementwise();
  void LossEmbeddingUpdate();
  // Gated activations, rotation and windows; in variant_benches.cc.
  void Variants();
  // GEMMs, attention, norm, activation, loss and update on tensors of a 16-bit type; in
  // variant_benches.cc, too.
  void Halves(DType dtype);

 private:
  Tensor Make(Shape shape, DType dtype = DType::kF32);
  Workspace Scratch(int64_t bytes);
  void AttentionOf(DType dtype, int64_t window, const std::string& what);

  Backend& backend_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

}  // namespace mt::kernels::bench
