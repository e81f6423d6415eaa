// Chooses between cuDNN and the custom flash kernels call by call, and refuses while planning what
// neither can compute on this GPU.
#include "kernels/cuda/attention/attention.h"

#include <fmt/format.h>

#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/decode/decode.h"

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

void CheckDecode(const AttentionDecodeArgs& a) {
  const int64_t rows = a.qkv.shape[0];
  CHECK(a.g > 0 && a.a % a.g == 0) << a.a << " heads, " << a.g << " groups";
  CHECK_GE(a.window, 0);
  CHECK_EQ(a.qkv.shape[1], (a.a + 2 * a.g) * a.d);
  CHECK(a.sequences.NumElements() == rows && a.positions.NumElements() == rows);
  CHECK(a.k_cache.shape == a.v_cache.shape);
  CHECK(a.k_cache.shape[1] == a.g && a.k_cache.shape[3] == a.d);
}

}  // namespace

std::string CudaAttention::Who::Text() const {
  if (cudnn && custom) return "cuDNN and own";
  return cudnn ? "cuDNN" : custom ? "own" : "none";
}

std::string CudaAttention::Kernels() const {
  return fmt::format("forward {}, backward {}", forward_.Text(), backward_.Text());
}

// GPUs of compute capability 8.6 and 8.9 have 99 KiB of shared memory per block, too little for
// large heads.
void CudaAttention::CheckFits(const AttentionShape& z) const {
  const int64_t needed = FlashSharedBytes(z);
  if (needed <= limits_.shared_bytes) return;
  throw DeviceError(fmt::format(
      "cuda device {}: attention with heads of {} in {} takes {} bytes of shared memory a block "
      "where cuDNN does not compute it, of which this GPU (sm_{}{}) has {}: use heads of 64, or "
      "heads up to 128 with what cuDNN computes (training.precision bf16 or fp16, "
      "model.attention_dropout 0)",
      limits_.ordinal, z.d, Name(z.dtype), needed, limits_.major, limits_.minor,
      limits_.shared_bytes));
}

int64_t CudaAttention::Plan(const AttentionForwardArgs& a) {
  const bool by_cudnn = cudnn_->Has(a);
  (by_cudnn ? forward_.cudnn : forward_.custom) = true;
  if (by_cudnn) return cudnn_->WorkspaceBytes(a);
  CheckFits(a.shape);
  return 0;
}

void CudaAttention::Forward(Stream& stream, const AttentionForwardArgs& a) const {
  CheckAttention(a.shape, a.dropout, a.lse);
  if (cudnn_->Has(a)) return cudnn_->Forward(stream, a);
  FlashForward(stream, a);
}

int64_t CudaAttention::GradBytes(const AttentionGradArgs& a) const {
  return cudnn_->Has(a) ? cudnn_->WorkspaceBytes(a) : FlashGradBytes(a.shape);
}

int64_t CudaAttention::Plan(const AttentionGradArgs& a) {
  const bool by_cudnn = cudnn_->Has(a);
  (by_cudnn ? backward_.cudnn : backward_.custom) = true;
  if (!by_cudnn) CheckFits(a.shape);
  return GradBytes(a);
}

void CudaAttention::Grad(Stream& stream, const AttentionGradArgs& a) const {
  CheckAttention(a.shape, a.dropout, a.lse);
  const bool by_cudnn = cudnn_->Has(a);
  if (!by_cudnn) CheckFits(a.shape);
  CHECK_GE(a.workspace.bytes, GradBytes(a));
  if (by_cudnn) return cudnn_->Grad(stream, a);
  FlashGrad(stream, a);
}

int64_t CudaAttention::DecodeWorkspaceBytes(const AttentionDecodeArgs& a) const {
  if (a.d > kMostDecodeHead) {
    throw DeviceError(fmt::format("cuda device {}: heads of {} are not decoded, up to {} are",
                                  limits_.ordinal, a.d, kMostDecodeHead));
  }
  return DecodeAttentionBytes(a);
}

void CudaAttention::Decode(Stream& stream, const AttentionDecodeArgs& a) const {
  CheckDecode(a);
  CHECK_EQ(a.o.NumElements(), a.qkv.shape[0] * a.a * a.d);
  if (a.slopes) CHECK_EQ(a.slopes.NumElements(), a.a);
  CHECK_GE(a.workspace.bytes, DecodeWorkspaceBytes(a));
  if (!a.one_row_each) LaunchStoreKeys(stream, a);
  LaunchDecodeAttention(stream, a);
}

void CudaAttention::StoreKeys(Stream& stream, const AttentionDecodeArgs& a) const {
  CheckDecode(a);
  LaunchStoreKeys(stream, a);
}

}  // namespace mt::kernels::cuda
