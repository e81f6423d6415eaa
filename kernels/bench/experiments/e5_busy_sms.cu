// E5: a GEMM beside a kernel that occupies k SMs (as a ring collective does), with and without
// telling cuBLASLt about it (SM_COUNT_TARGET). It decides SM budgets and their place in the tuning
// key.
#include "kernels/bench/experiments/measure.cuh"

namespace experiment {
namespace {

constexpr int kSms = 132;

// One thread block per SM (its shared memory leaves no room for another), until told to stop.
__global__ void Spin(volatile int* stop) {
  extern __shared__ char all_of_it[];
  all_of_it[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    while (*stop == 0) __nanosleep(200);
  }
}

class Spinner {
 public:
  explicit Spinner(int blocks) {
    CUDA_OK(cudaHostAlloc(&stop_, sizeof(int), cudaHostAllocMapped));
    *stop_ = 0;
    CUDA_OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    if (blocks == 0) return;
    constexpr int kShared = 227 << 10;
    CUDA_OK(cudaFuncSetAttribute(Spin, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    int* device_stop = nullptr;
    CUDA_OK(cudaHostGetDevicePointer(&device_stop, stop_, 0));
    Spin<<<blocks, 32, kShared, stream_>>>(device_stop);
    CUDA_OK(cudaGetLastError());
  }
  ~Spinner() {
    *static_cast<volatile int*>(stop_) = 1;
    CUDA_OK(cudaStreamSynchronize(stream_));
    CUDA_OK(cudaFreeHost(stop_));
    CUDA_OK(cudaStreamDestroy(stream_));
  }

 private:
  int* stop_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

void Main() {
  cublasLtHandle_t handle;
  BLAS_OK(cublasLtCreate(&handle));
  const size_t bytes = size_t{64} << 20;
  void* workspace = nullptr;
  CUDA_OK(cudaMalloc(&workspace, bytes));
  cudaStream_t stream;
  CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  struct Case {
    const char* name;
    bool ta, tb;
    int64_t m, n, k;
    cudaDataType_t type;
  };
  std::printf(
      "product, us (over its time alone x 132 / (132 - k)); untold: tuned alone; told: "
      "SM_COUNT_TARGET and tuned so\n");
  for (const Case c : {Case{"fwd qkv 1.3B", true, false, 6144, 8192, 2048, CUDA_R_16BF},
                       Case{"fwd fc2 1.3B", true, false, 2048, 8192, 8192, CUDA_R_16BF},
                       Case{"dgrad fc1 1.3B", false, false, 2048, 8192, 8192, CUDA_R_16BF},
                       Case{"wgrad fc1 1.3B", false, true, 2048, 8192, 8192, CUDA_R_32F},
                       Case{"wgrad qkv 13B", false, true, 5120, 15360, 4096, CUDA_R_32F}}) {
    bf16* a = RandomBf16(c.m * c.k, 1);
    bf16* b = RandomBf16(c.n * c.k, 2);
    void* d = Allocate<float>(c.m * c.n);
    CUDA_OK(cudaDeviceSynchronize());
    const GemmArgs base{.transpose_a = c.ta,
                        .transpose_b = c.tb,
                        .m = c.m,
                        .n = c.n,
                        .k = c.k,
                        .a = a,
                        .b = b,
                        .d = d,
                        .d_type = c.type};
    Gemm untold(handle, workspace, bytes, base);
    untold.Tune(stream);
    const double alone = MedianMicros(stream, [&] { untold.Run(stream); });
    std::printf("%-15s alone %7.1f us, %3.0f TFLOP/s\n", c.name, alone, untold.Teraflops(alone));
    for (const int k : {1, 2, 4, 8, 16, 32}) {
      const double fair = alone * kSms / (kSms - k);
      GemmArgs p = base;
      p.sm_target = kSms - k;
      Gemm told(handle, workspace, bytes, p);
      // Every candidate is loaded before the spinning kernel starts: loading a module waits for the
      // device.
      told.Tune(stream);
      CUDA_OK(cudaDeviceSynchronize());
      double with = 0, without = 0;
      {
        const Spinner spinner(k);
        told.Tune(stream);
        without = MedianMicros(
            stream, [&] { untold.Run(stream); }, 9);
        with = MedianMicros(
            stream, [&] { told.Run(stream); }, 9);
      }
      const double target_alone = MedianMicros(
          stream, [&] { told.Run(stream); }, 9);
      std::printf(
          "  k %2d: untold %7.1f (%.2f) | told %7.1f (%.2f) | told, nobody beside it %7.1f "
          "(%.2f)\n",
          k, without, without / fair, with, with / fair, target_alone, target_alone / fair);
    }
    for (void* q : {static_cast<void*>(a), static_cast<void*>(b), d}) CUDA_OK(cudaFree(q));
  }
}

}  // namespace
}  // namespace experiment

int main() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  experiment::Main();
}
