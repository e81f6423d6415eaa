// Causal attention through cuDNN's fused kernels, in bf16 and f16: grouped heads, sliding windows,
// packed projections read by strides (docs/design/gpu-engine.md#attention; docs/gpu-experiments.md,
// E1). Plans are built once per shape and kept; the first build of one compiles for about half a
// second.
#pragma once

#include <compare>
#include <map>
#include <memory>

#include <cudnn.h>

#include "common/base/mutex.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

// Thread-safe.
class CudnnAttention {
 public:
  explicit CudnnAttention(const DeviceLimits& limits);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Whether cuDNN has a plan for the call; builds it when first asked.
  bool Has(const AttentionForwardArgs& args);
  bool Has(const AttentionGradArgs& args);
  // Of calls that it has.
  int64_t WorkspaceBytes(const AttentionForwardArgs& args);
  int64_t WorkspaceBytes(const AttentionGradArgs& args);
  void Forward(const Stream& stream, const AttentionForwardArgs& args);
  void Grad(const Stream& stream, const AttentionGradArgs& args);
  // Plans looked for so far, found or not.
  int64_t NumPlans();

 private:
  struct View {
    int64_t s = 0, b = 0, head = 0;  // strides
    friend auto operator<=>(const View&, const View&) = default;
  };
  // All that a plan depends on. Batch is that of one execution: the deterministic gradient goes
  // through the batch in parts.
  struct Key {
    bool gradient = false, deterministic = false;
    DType dtype = DType::kBf16;
    int64_t s = 0, b = 0, a = 0, g = 0, d = 0, window = 0;
    bool causal = true;
    View q, k, v, o, dout, dq, dk, dv;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  class GraphOf;

  static Key KeyOf(const AttentionForwardArgs& args);
  static Key KeyOf(const AttentionGradArgs& args);
  bool Covers(const AttentionShape& shape, const AttentionDropout& dropout, bool gradient) const;
  // Null where cuDNN has no plan.
  const CudnnPlan* PlanOf(const Key& key);
  void Bind(const Stream& stream) EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DeviceLimits limits_;
  base::Mutex mutex_;
  cudnnHandle_t handle_ GUARDED_BY(mutex_) = nullptr;
  std::map<Key, std::unique_ptr<CudnnPlan>> plans_ GUARDED_BY(mutex_);
};

}  // namespace mt::kernels::cuda
