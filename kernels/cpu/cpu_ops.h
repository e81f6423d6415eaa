// The CPU's implementation of each op family, one .cc file per family: checks of shapes and dtypes,
// the split over threads, and calls into loops/ (plain pointers, compiled for MT_CPU_ARCH) and
// OpenBLAS. All families take f32, f64, bf16 and f16.
// Threading: stateless; thread-safe for calls whose buffers are their own. Calls return when the
// work is done.
// Errors: wrong shapes and dtypes abort (CHECK).
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/backend.h"

namespace mt::kernels::cpu {

class CpuEmbedding final : public EmbeddingOps {
 public:
  explicit CpuEmbedding(ThreadPool* pool) : pool_(pool) {}
  void Gather(Stream& stream, const EmbeddingGatherArgs& args) const override;
  void ScatterGrad(Stream& stream, const EmbeddingScatterArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuAddNorm final : public AddNormOps {
 public:
  explicit CpuAddNorm(ThreadPool* pool) : pool_(pool) {}
  void AddNorm(Stream& stream, const AddNormArgs& args) const override;
  int64_t WorkspaceBytes(const AddNormGradArgs& args) const override;
  void AddNormGrad(Stream& stream, const AddNormGradArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuLinear final : public LinearOps {
 public:
  CpuLinear(ThreadPool* pool, const ActOps* act, const VectorOps* vector)
      : LinearOps(act, vector), pool_(pool) {}
  using LinearOps::Plan;  // the fused entries' overloads
  int64_t Plan(const LinearForwardArgs& args) override;
  int64_t Plan(const LinearInputGradArgs& args) override;
  int64_t Plan(const LinearWeightGradArgs& args) override;
  void Forward(Stream& stream, const LinearForwardArgs& args) const override;
  void ForwardFewRows(Stream& stream, const LinearForwardArgs& args) const override;
  void InputGrad(Stream& stream, const LinearInputGradArgs& args) const override;
  void WeightGrad(Stream& stream, const LinearWeightGradArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuAct final : public ActOps {
 public:
  explicit CpuAct(ThreadPool* pool) : pool_(pool) {}
  void Act(Stream& stream, const ActArgs& args) const override;
  void ActGrad(Stream& stream, const ActGradArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuRope final : public RopeOps {
 public:
  explicit CpuRope(ThreadPool* pool) : pool_(pool) {}
  void Rotate(Stream& stream, const RotateArgs& args) const override;
  int64_t WorkspaceBytes(const RotateGradArgs& args) const override;
  void RotateGrad(Stream& stream, const RotateGradArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuAttention final : public AttentionOps {
 public:
  explicit CpuAttention(ThreadPool* pool) : pool_(pool) {}
  int64_t Plan(const AttentionForwardArgs& args) override;
  void Forward(Stream& stream, const AttentionForwardArgs& args) const override;
  int64_t Plan(const AttentionGradArgs& args) override;
  void Grad(Stream& stream, const AttentionGradArgs& args) const override;
  int64_t DecodeWorkspaceBytes(const AttentionDecodeArgs& args) const override;
  void Decode(Stream& stream, const AttentionDecodeArgs& args) const override;
  void StoreKeys(Stream& stream, const AttentionDecodeArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuLoss final : public LossOps {
 public:
  explicit CpuLoss(ThreadPool* pool) : pool_(pool) {}
  void Stats(Stream& stream, const LossStatsArgs& args) const override;
  void Finish(Stream& stream, const LossFinishArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuUpdate final : public UpdateOps {
 public:
  explicit CpuUpdate(ThreadPool* pool) : pool_(pool) {}
  void SquareSum(Stream& stream, const SquareSumArgs& args) const override;
  void Advance(Stream& stream, StepScalars* scalars, const EndOfStep* vector,
               const StepConstants& constants) const override;
  void AdamW(Stream& stream, const AdamWArgs& args) const override;
  void Sgd(Stream& stream, const SgdArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

class CpuVector final : public VectorOps {
 public:
  explicit CpuVector(ThreadPool* pool) : pool_(pool) {}
  void AddTo(Stream& stream, const Tensor& to, const Tensor& from) const override;
  void SumPartials(Stream& stream, const Tensor& out, const Partials& partials) const override;
  void Cast(Stream& stream, const Tensor& to, const Tensor& from) const override;
  void Fill(Stream& stream, const Tensor& to, double value) const override;
  void RowSum(Stream& stream, const Tensor& x, GradMode mode, const Tensor& out) const override;

 private:
  ThreadPool* const pool_;
};

class CpuRandom final : public RandomOps {
 public:
  explicit CpuRandom(ThreadPool* pool) : pool_(pool) {}
  void FillNormal(Stream& stream, const FillNormalArgs& args) const override;

 private:
  ThreadPool* const pool_;
};

}  // namespace mt::kernels::cpu
