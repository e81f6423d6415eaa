// Attention through cuDNN's fused kernels in bf16 and f16: causal or full, grouped heads, sliding
// windows, packed projections read through strides (docs/design/gpu-engine.md#attention;
// docs/gpu-experiments.md, E1). Plans are built once per shape and kept; the first build of a plan
// compiles for about half a second.
#pragma once

#include <compare>
#include <map>
#include <memory>

#include <cudnn.h>

#include "common/base/mutex.h"
#include "kernels/cuda/attention/cudnn_graph.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/ops/attention.h"

namespace mt::kernels::cuda {

// The cuDNN handle and execution plans of one GPU. Thread-safe; calls are serialised on the handle
// while they enqueue. Errors of the library throw DeviceError.
class CudnnAttention {
 public:
  explicit CudnnAttention(const DeviceLimits& limits);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Returns whether cuDNN has a plan for the call; builds the plan on the first request, which
  // blocks. Always false for f32, dropout, ALiBi and q0 != k0.
  bool Has(const AttentionForwardArgs& args);
  bool Has(const AttentionGradArgs& args);
  // The following require that Has(args) is true.
  int64_t WorkspaceBytes(const AttentionForwardArgs& args);
  int64_t WorkspaceBytes(const AttentionGradArgs& args);
  void Forward(const Stream& stream, const AttentionForwardArgs& args);
  void Grad(const Stream& stream, const AttentionGradArgs& args);
  // Runs every plan once on memory of its own, and waits. Throws DeviceMemoryError.
  void RunPlanned();
  // Number of plans requested so far, whether found or not.
  int64_t NumPlans();

 private:
  struct View {
    int64_t s = 0, b = 0, head = 0;  // strides in elements
    friend auto operator<=>(const View&, const View&) = default;
  };
  // Everything that a plan depends on. b is the batch of one execution: the deterministic gradient
  // processes the batch in parts.
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
  // A call of this key whose operands all begin at `data`.
  static AttentionGradArgs CallOf(const Key& key, void* data);
  bool Covers(const AttentionShape& shape, const AttentionDropout& dropout, bool gradient) const;
  // Returns nullptr if cuDNN has no plan; builds it on the first request.
  const CudnnPlan* PlanOf(const Key& key);
  void Bind(const Stream& stream) EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DeviceLimits limits_;
  base::Mutex mutex_;
  cudnnHandle_t handle_ GUARDED_BY(mutex_) = nullptr;
  std::map<Key, std::unique_ptr<CudnnPlan>> plans_ GUARDED_BY(mutex_);
};

}  // namespace mt::kernels::cuda
