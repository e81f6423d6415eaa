// The GPU's implementation of each op family, one .cu file per family, for f32, bf16 and f16
// (vector ops also for f64 and integers).
// Threading: stateless except for choices made when a run is planned; thread-safe for calls with
// streams and buffers of their own. Calls enqueue and return.
// Errors: wrong shapes and dtypes abort (CHECK), CUDA's errors throw DeviceError. Every custom
// kernel gives the same bits in every run.
#pragma once

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::cuda {

class CudaVector final : public VectorOps {
 public:
  explicit CudaVector(const DeviceLimits& limits) : limits_(limits) {}
  void AddTo(Stream& stream, const Tensor& to, const Tensor& from) const override;
  void SumPartials(Stream& stream, const Tensor& out, const Partials& partials) const override;
  void Cast(Stream& stream, const Tensor& to, const Tensor& from) const override;
  void Fill(Stream& stream, const Tensor& to, double value) const override;
  void RowSum(Stream& stream, const Tensor& x, GradMode mode, const Tensor& out) const override;

 private:
  const DeviceLimits limits_;
};

class CudaRandom final : public RandomOps {
 public:
  void FillNormal(Stream& stream, const FillNormalArgs& args) const override;
};

class CudaAddNorm final : public AddNormOps {
 public:
  explicit CudaAddNorm(const DeviceLimits& limits) : limits_(limits) {}
  void AddNorm(Stream& stream, const AddNormArgs& args) const override;
  int64_t WorkspaceBytes(const AddNormGradArgs& args) const override;
  void AddNormGrad(Stream& stream, const AddNormGradArgs& args) const override;

 private:
  const DeviceLimits limits_;
};

class CudaAct final : public ActOps {
 public:
  void Act(Stream& stream, const ActArgs& args) const override;
  void ActGrad(Stream& stream, const ActGradArgs& args) const override;
};

class CudaRope final : public RopeOps {
 public:
  explicit CudaRope(const DeviceLimits& limits) : limits_(limits) {}
  void Rotate(Stream& stream, const RotateArgs& args) const override;
  int64_t WorkspaceBytes(const RotateGradArgs& args) const override;
  void RotateGrad(Stream& stream, const RotateGradArgs& args) const override;

 private:
  const DeviceLimits limits_;
};

class CudaEmbedding final : public EmbeddingOps {
 public:
  explicit CudaEmbedding(const DeviceLimits& limits) : limits_(limits) {}
  void Gather(Stream& stream, const EmbeddingGatherArgs& args) const override;
  void ScatterGrad(Stream& stream, const EmbeddingScatterArgs& args) const override;

 private:
  const DeviceLimits limits_;
};

class CudaLoss final : public LossOps {
 public:
  void Stats(Stream& stream, const LossStatsArgs& args) const override;
  void Finish(Stream& stream, const LossFinishArgs& args) const override;
  void StatsFinish(Stream& stream, const LossFinishArgs& args) const override;
};

class CudaUpdate final : public UpdateOps {
 public:
  explicit CudaUpdate(const DeviceLimits& limits) : limits_(limits) {}
  void SquareSum(Stream& stream, const SquareSumArgs& args) const override;
  void Advance(Stream& stream, StepScalars* scalars, const EndOfStep* vector,
               const StepConstants& constants) const override;
  void AdamW(Stream& stream, const AdamWArgs& args) const override;
  void Sgd(Stream& stream, const SgdArgs& args) const override;

 private:
  const DeviceLimits limits_;
};

}  // namespace mt::kernels::cuda
