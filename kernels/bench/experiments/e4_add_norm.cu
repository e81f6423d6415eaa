// E4: residual add + norm (residual + branch + bias, dropout from a counter, LayerNorm) and its
// gradient: bytes per second against the device's copy rate, without dropout, with one Philox call
// per 8 channels, and with one per channel. It decides whether masks are recomputed or stored.
// Legend: R rows, h hidden; a thread block works on one row at a time, 8 channels per thread and
// vector.
#include "kernels/bench/experiments/measure.cuh"
#include "kernels/core/random.h"

namespace experiment {
namespace {

using mt::kernels::Philox;
using mt::kernels::Philox4;

enum class Mask { kNone, kPerEight, kPerChannel };

__device__ inline float Sum(float x, float* shared) {
#pragma unroll
  for (int delta = 16; delta > 0; delta /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, delta);
  if (blockDim.x == 32) return x;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[warp] = x;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < warps; ++i) total += shared[i];
  return total;
}

struct Vec8 {
  float v[8];
};

__device__ inline Vec8 Load(const bf16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const auto* halves = reinterpret_cast<const bf16*>(&raw);
  Vec8 out;
#pragma unroll
  for (int i = 0; i < 8; ++i) out.v[i] = __bfloat162float(halves[i]);
  return out;
}

__device__ inline void Store(const Vec8& x, bf16* to) {
  uint4 raw;
  auto* halves = reinterpret_cast<bf16*>(&raw);
#pragma unroll
  for (int i = 0; i < 8; ++i) halves[i] = __float2bfloat16(x.v[i]);
  *reinterpret_cast<uint4*>(to) = raw;
}

// Multiplies the 8 channels from `channel` on by 0 or `scale`.
template <Mask kMask>
__device__ inline void Drop(Vec8* x, int row, int channel, uint32_t threshold, float scale) {
  if constexpr (kMask == Mask::kPerEight) {
    const Philox4 bits =
        Philox(42, {{static_cast<uint32_t>(channel / 8), static_cast<uint32_t>(row), 7, 0}});
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t u = (bits.word[i / 2] >> (16 * (i % 2))) & 0xFFFFU;
      x->v[i] = u >= threshold ? x->v[i] * scale : 0;
    }
  } else if constexpr (kMask == Mask::kPerChannel) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const Philox4 bits =
          Philox(42, {{static_cast<uint32_t>(channel + i), static_cast<uint32_t>(row), 7, 0}});
      x->v[i] = (bits.word[0] & 0xFFFFU) >= threshold ? x->v[i] * scale : 0;
    }
  }
}

struct Args {
  int rows, h;
  const bf16 *residual, *branch, *bias, *gain, *shift;
  bf16 *out, *y;
  float *mean, *rstd;
  const bf16 *dy, *dnext;
  bf16 *dresidual, *dbranch;
  float* sums;  // [grid, 3, h]
  uint32_t threshold;
  float scale;
};

template <int kVectors, Mask kMask>
__global__ void Forward(Args a) {
  __shared__ float shared[32];
  for (int row = static_cast<int>(blockIdx.x); row < a.rows; row += static_cast<int>(gridDim.x)) {
    const int64_t base = static_cast<int64_t>(row) * a.h;
    Vec8 x[kVectors];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int c = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
      const Vec8 residual = Load(a.residual + base + c), bias = Load(a.bias + c);
      x[j] = Load(a.branch + base + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[j].v[i] += bias.v[i];
      Drop<kMask>(&x[j], row, c, a.threshold, a.scale);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[j].v[i] += residual.v[i];
        sum += x[j].v[i];
      }
      Store(x[j], a.out + base + c);
    }
    const float mean = Sum(sum, shared) / static_cast<float>(a.h);
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += (x[j].v[i] - mean) * (x[j].v[i] - mean);
    }
    const float rstd = rsqrtf(Sum(squares, shared) / static_cast<float>(a.h) + 1e-5F);
    if (threadIdx.x == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int c = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
      const Vec8 gain = Load(a.gain + c), shift = Load(a.shift + c);
      Vec8 y;
#pragma unroll
      for (int i = 0; i < 8; ++i) y.v[i] = (x[j].v[i] - mean) * rstd * gain.v[i] + shift.v[i];
      Store(y, a.y + base + c);
    }
  }
}

template <int kVectors, Mask kMask>
__global__ void Backward(Args a) {
  __shared__ float shared[32];
  Vec8 dgain[kVectors], dshift[kVectors], dbias[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < 8; ++i) dgain[j].v[i] = dshift[j].v[i] = dbias[j].v[i] = 0;
  }
  for (int row = static_cast<int>(blockIdx.x); row < a.rows; row += static_cast<int>(gridDim.x)) {
    const int64_t base = static_cast<int64_t>(row) * a.h;
    const float mean = a.mean[row], rstd = a.rstd[row];
    Vec8 xhat[kVectors], g[kVectors];
    float sum_g = 0, sum_gx = 0;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int c = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
      const Vec8 x = Load(a.out + base + c), dy = Load(a.dy + base + c), gain = Load(a.gain + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        xhat[j].v[i] = (x.v[i] - mean) * rstd;
        dgain[j].v[i] += dy.v[i] * xhat[j].v[i];
        dshift[j].v[i] += dy.v[i];
        g[j].v[i] = dy.v[i] * gain.v[i];
        sum_g += g[j].v[i];
        sum_gx += g[j].v[i] * xhat[j].v[i];
      }
    }
    const float mean_g = Sum(sum_g, shared) / static_cast<float>(a.h);
    const float mean_gx = Sum(sum_gx, shared) / static_cast<float>(a.h);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int c = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
      Vec8 d = Load(a.dnext + base + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) d.v[i] += rstd * (g[j].v[i] - mean_g - xhat[j].v[i] * mean_gx);
      Store(d, a.dresidual + base + c);
      if constexpr (kMask != Mask::kNone) {
        Drop<kMask>(&d, row, c, a.threshold, a.scale);
        Store(d, a.dbranch + base + c);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) dbias[j].v[i] += d.v[i];
    }
  }
  float* const mine = a.sums + static_cast<int64_t>(blockIdx.x) * 3 * a.h;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int c = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      mine[c + i] = dgain[j].v[i];
      mine[a.h + c + i] = dshift[j].v[i];
      mine[2 * a.h + c + i] = dbias[j].v[i];
    }
  }
}

// The second stage of the column sums, in a fixed order, so that every run gives the same bits.
__global__ void SumStage(const float* sums, int blocks, int columns, float* out) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= columns) return;
  float total = 0;
  for (int b = 0; b < blocks; ++b) total += sums[static_cast<int64_t>(b) * columns + c];
  out[c] = total;
}

struct Shape {
  int h, threads, vectors;
};

template <int kVectors, Mask kMask>
void Measure(const char* name, const Args& a, int threads, float* grads, double copy_rate) {
  cudaStream_t stream = nullptr;
  const double elements = static_cast<double>(a.rows) * a.h;
  double best_forward = 1e30, best_backward = 1e30;
  int forward_grid = 0, backward_grid = 0;
  for (const int per_sm : {1, 2, 4, 8, 16}) {
    const int grid = 132 * per_sm;
    const double f = MedianMicros(
        stream, [&] { Forward<kVectors, kMask><<<grid, threads>>>(a); }, 9);
    if (f < best_forward) best_forward = f, forward_grid = grid;
    if (per_sm > 4) continue;
    const double b = MedianMicros(
        stream,
        [&] {
          Backward<kVectors, kMask><<<grid, threads>>>(a);
          SumStage<<<(3 * a.h + 127) / 128, 128>>>(a.sums, grid, 3 * a.h, grads);
        },
        9);
    if (b < best_backward) best_backward = b, backward_grid = grid;
  }
  CUDA_OK(cudaGetLastError());
  const double forward_bytes = elements * 8,
               backward_bytes = elements * (kMask == Mask::kNone ? 8 : 10);
  const double f = forward_bytes / best_forward / 1e6, b = backward_bytes / best_backward / 1e6;
  std::printf(
      "  %-18s forward %7.1f us %.2f TB/s (%.2f of copy, grid %d) | backward %7.1f us %.2f TB/s "
      "(%.2f, grid %d)\n",
      name, best_forward, f, f / copy_rate, forward_grid, best_backward, b, b / copy_rate,
      backward_grid);
}

template <int kVectors>
void MeasureShape(int rows, int h, int threads, double copy_rate) {
  const int64_t n = static_cast<int64_t>(rows) * h;
  Args a{.rows = rows,
         .h = h,
         .residual = RandomBf16(n, 1),
         .branch = RandomBf16(n, 2),
         .bias = RandomBf16(h, 3),
         .gain = RandomBf16(h, 4),
         .shift = RandomBf16(h, 5),
         .out = Allocate<bf16>(n),
         .y = Allocate<bf16>(n),
         .mean = Allocate<float>(rows),
         .rstd = Allocate<float>(rows),
         .dy = RandomBf16(n, 6),
         .dnext = RandomBf16(n, 7),
         .dresidual = Allocate<bf16>(n),
         .dbranch = Allocate<bf16>(n),
         .sums = Allocate<float>(int64_t{132} * 4 * 3 * h),
         .threshold = 6554,
         .scale = 1.0F / (1.0F - 6554.0F / 65536.0F)};
  float* grads = Allocate<float>(3 * h);
  std::printf("R %5d h %4d (%d threads x %d vectors)\n", rows, h, threads, kVectors);
  Measure<kVectors, Mask::kNone>("no dropout", a, threads, grads, copy_rate);
  Measure<kVectors, Mask::kPerEight>("8 per Philox call", a, threads, grads, copy_rate);
  Measure<kVectors, Mask::kPerChannel>("1 per Philox call", a, threads, grads, copy_rate);
  for (const void* p : {static_cast<const void*>(a.residual), static_cast<const void*>(a.branch),
                        static_cast<const void*>(a.bias), static_cast<const void*>(a.gain),
                        static_cast<const void*>(a.shift), static_cast<const void*>(a.out),
                        static_cast<const void*>(a.y), static_cast<const void*>(a.mean),
                        static_cast<const void*>(a.rstd), static_cast<const void*>(a.dy),
                        static_cast<const void*>(a.dnext), static_cast<const void*>(a.dresidual),
                        static_cast<const void*>(a.dbranch), static_cast<const void*>(a.sums),
                        static_cast<const void*>(grads)})
    CUDA_OK(cudaFree(const_cast<void*>(p)));
}

void Main() {
  const int64_t bytes = int64_t{1} << 30;
  void* from = nullptr;
  void* to = nullptr;
  CUDA_OK(cudaMalloc(&from, bytes));
  CUDA_OK(cudaMalloc(&to, bytes));
  const double us = MedianMicros(nullptr, [&] {
    CUDA_OK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr));
  });
  const double copy_rate = 2.0 * static_cast<double>(bytes) / us / 1e6;
  std::printf("device copy %.2f TB/s (read + write)\n", copy_rate);
  CUDA_OK(cudaFree(from));
  CUDA_OK(cudaFree(to));
  for (const int rows : {4096, 16384, 65536}) {
    MeasureShape<3>(rows, 768, 32, copy_rate);
    MeasureShape<1>(rows, 768, 96, copy_rate);
    MeasureShape<2>(rows, 2048, 128, copy_rate);
    MeasureShape<1>(rows, 2048, 256, copy_rate);
    MeasureShape<5>(rows, 5120, 128, copy_rate);
    MeasureShape<2>(rows, 5120, 320, copy_rate);
  }
}

}  // namespace
}  // namespace experiment

int main() { experiment::Main(); }
