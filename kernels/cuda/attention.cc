#include "kernels/cuda/attention.h"

#include "kernels/cuda/flash.h"

namespace mt::kernels::cuda {
namespace {

void CheckAttention(const AttentionShape& z, const AttentionDropout& dropout, const Tensor& lse) {
  CHECK(z.g > 0 && z.a % z.g == 0) << z.a << " query heads, " << z.g << " key/value heads";
  CHECK(z.window >= 0 && (z.window == 0 || z.causal)) << "a window is causal";
  CHECK_LE(z.d, kLargestFlashHead);
  CHECK_EQ(lse.NumElements(), z.b * z.a * z.s);
  if (z.slopes) CHECK_EQ(z.slopes.NumElements(), z.a);
  if (!dropout.rate.active()) return;
  CHECK(dropout.samples.NumElements() == z.b && dropout.positions.NumElements() == z.s);
  if (dropout.key_positions) CHECK_EQ(dropout.key_positions.NumElements(), z.s);
}

}  // namespace

int64_t CudaAttention::WorkspaceBytes(const AttentionForwardArgs& a) const {
  return cudnn_->Has(a) ? cudnn_->WorkspaceBytes(a) : 0;
}

void CudaAttention::Forward(Stream& stream, const AttentionForwardArgs& a) const {
  CheckAttention(a.shape, a.dropout, a.lse);
  if (cudnn_->Has(a)) return cudnn_->Forward(stream, a);
  FlashForward(stream, a);
}

int64_t CudaAttention::WorkspaceBytes(const AttentionGradArgs& a) const {
  return cudnn_->Has(a) ? cudnn_->WorkspaceBytes(a) : FlashGradBytes(a.shape);
}

void CudaAttention::Grad(Stream& stream, const AttentionGradArgs& a) const {
  CheckAttention(a.shape, a.dropout, a.lse);
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  if (cudnn_->Has(a)) return cudnn_->Grad(stream, a);
  FlashGrad(stream, a);
}

}  // namespace mt::kernels::cuda
