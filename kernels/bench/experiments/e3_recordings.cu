// E3: the calls of 24 layers (forward and backward at 1.3B's shapes, without attention), eager
// against recorded as one CUDA graph; the host's time to enqueue them; the cost of marks
// (one-thread kernels that write {sequence, clock} to pinned memory) per layer and per call; and a
// stream outside that waits for external event nodes of the graph. It decides whether recordings
// pay off and where marks are placed.
#include <chrono>
#include <memory>

#include "kernels/bench/experiments/measure.cuh"

namespace experiment {
namespace {

constexpr int kLayers = 24;
constexpr int kRing = 1 << 16;

__global__ void AddNormTraffic(const bf16* a, const bf16* b, bf16* out, int64_t groups) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < groups;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const uint4 x = reinterpret_cast<const uint4*>(a)[i], y = reinterpret_cast<const uint4*>(b)[i];
    reinterpret_cast<uint4*>(out)[i] = make_uint4(x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w);
  }
}

__global__ void Marker(uint64_t* sequence, ulonglong2* ring) {
  uint64_t clock = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(clock));
  const uint64_t n = (*sequence)++;
  ring[n % kRing] = make_ulonglong2(n, clock);
}

enum class Markers { kNone, kPerLayer, kPerCall };

class Layers {
 public:
  Layers(int64_t tokens, int64_t h) : tokens_(tokens), h_(h) {
    BLAS_OK(cublasLtCreate(&handle_));
    CUDA_OK(cudaMalloc(&workspace_, kWorkspace));
    CUDA_OK(cudaMalloc(&sequence_, sizeof(uint64_t)));
    CUDA_OK(cudaMemset(sequence_, 0, sizeof(uint64_t)));
    CUDA_OK(cudaHostAlloc(&ring_, sizeof(ulonglong2) * kRing, cudaHostAllocMapped));
    CUDA_OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    x_ = RandomBf16(tokens * 4 * h, 1);
    y_ = RandomBf16(tokens * 4 * h, 2);
    w_ = RandomBf16(4 * h * h, 3, 0.02F);
    dw_ = Allocate<float>(4 * h * h);
    out_ = Allocate<bf16>(tokens * 4 * h);
    for (const auto& [n, k] : {std::pair{3 * h, h}, {h, h}, {4 * h, h}, {h, 4 * h}}) {
      Add({.transpose_a = true, .m = n, .n = tokens, .k = k, .a = w_, .b = x_, .d = out_});
      Add({.m = k, .n = tokens, .k = n, .a = w_, .b = y_, .d = out_});
      Add({.transpose_b = true,
           .m = k,
           .n = n,
           .k = tokens,
           .a = x_,
           .b = y_,
           .d = dw_,
           .d_type = CUDA_R_32F,
           .beta = 1});
    }
    CUDA_OK(cudaDeviceSynchronize());
  }

  cudaStream_t stream() const { return stream_; }

  // 12 GEMMs and 10 memory-bound kernels per layer, as forward and backward have.
  void Enqueue(Markers markers, const std::vector<cudaEvent_t>* external = nullptr) const {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (size_t i = 0; i < gemms_.size(); ++i) {
        gemms_[i]->Run(stream_);
        Mark(markers, Markers::kPerCall);
        if (i % 6 == 5) continue;
        AddNormTraffic<<<1056, 256, 0, stream_>>>(x_, y_, out_, tokens_ * h_ / 8);
        Mark(markers, Markers::kPerCall);
      }
      Mark(markers, Markers::kPerLayer);
      if (external != nullptr) {
        CUDA_OK(cudaEventRecordWithFlags((*external)[static_cast<size_t>(layer)], stream_,
                                         cudaEventRecordExternal));
      }
    }
  }

  // The sum of the times of each call by itself, back to back: the cost of the layers without any
  // gap.
  double SumOfParts() const {
    double us = 0;
    for (const auto& gemm : gemms_)
      us += MedianMicros(
          stream_, [&] { gemm->Run(stream_); }, 7, 8);
    us +=
        10 * MedianMicros(
                 stream_,
                 [&] { AddNormTraffic<<<1056, 256, 0, stream_>>>(x_, y_, out_, tokens_ * h_ / 8); },
                 7, 8);
    return us * kLayers;
  }

 private:
  static constexpr size_t kWorkspace = size_t{64} << 20;

  void Add(const GemmArgs& p) {
    gemms_.push_back(std::make_unique<Gemm>(handle_, workspace_, kWorkspace, p));
    gemms_.back()->Tune(stream_);
  }
  void Mark(Markers wanted, Markers here) const {
    if (wanted == here) Marker<<<1, 1, 0, stream_>>>(sequence_, ring_);
  }

  int64_t tokens_, h_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  uint64_t* sequence_ = nullptr;
  ulonglong2* ring_ = nullptr;
  cudaStream_t stream_ = nullptr;
  bf16 *x_ = nullptr, *y_ = nullptr, *w_ = nullptr, *out_ = nullptr;
  float* dw_ = nullptr;
  std::vector<std::unique_ptr<Gemm>> gemms_;
};

cudaGraphExec_t Record(const Layers& layers, Markers markers,
                       const std::vector<cudaEvent_t>* external, size_t* nodes) {
  cudaGraph_t graph;
  CUDA_OK(cudaStreamBeginCapture(layers.stream(), cudaStreamCaptureModeThreadLocal));
  layers.Enqueue(markers, external);
  CUDA_OK(cudaStreamEndCapture(layers.stream(), &graph));
  CUDA_OK(cudaGraphGetNodes(graph, nullptr, nodes));
  cudaGraphExec_t exec;
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  CUDA_OK(cudaGraphDestroy(graph));
  return exec;
}

double HostMicros(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

void ExternalEvents(const Layers& layers) {
  std::vector<cudaEvent_t> events(kLayers);
  for (cudaEvent_t& event : events)
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  size_t nodes = 0;
  cudaGraphExec_t exec = Record(layers, Markers::kNone, &events, &nodes);
  cudaStream_t other;
  CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  uint64_t* count = Allocate<uint64_t>(1);
  ulonglong2* ring = Allocate<ulonglong2>(kRing);
  CUDA_OK(cudaMemset(count, 0, sizeof(uint64_t)));
  constexpr int kReplays = 200;
  for (int replay = 0; replay < kReplays; ++replay) {
    CUDA_OK(cudaGraphLaunch(exec, layers.stream()));
    for (int layer = 0; layer < kLayers; ++layer) {
      CUDA_OK(cudaStreamWaitEvent(other, events[static_cast<size_t>(layer)], 0));
      Marker<<<1, 1, 0, other>>>(count, ring);
    }
  }
  CUDA_OK(cudaDeviceSynchronize());
  uint64_t done = 0;
  CUDA_OK(cudaMemcpy(&done, count, sizeof(done), cudaMemcpyDeviceToHost));
  std::printf("external event nodes: %d replays, %lu of %d waits passed, %zu nodes\n", kReplays,
              static_cast<unsigned long>(done), kReplays * kLayers, nodes);
  CUDA_OK(cudaGraphExecDestroy(exec));
}

void Main() {
  for (const auto& [tokens, h] :
       {std::pair<int64_t, int64_t>{8192, 2048}, {4096, 768}, {65536, 768}}) {
    const Layers layers(tokens, h);
    const double parts = layers.SumOfParts();
    std::printf("T %ld h %ld, %d layers, 22 calls each: sum of parts %.1f us\n", tokens, h, kLayers,
                parts);
    double plain = 0;
    for (const Markers markers : {Markers::kNone, Markers::kPerLayer, Markers::kPerCall}) {
      const double eager = MedianMicros(
          layers.stream(), [&] { layers.Enqueue(markers); }, 9, 2);
      CUDA_OK(cudaDeviceSynchronize());
      const double host = HostMicros([&] { layers.Enqueue(markers); });
      CUDA_OK(cudaDeviceSynchronize());
      size_t nodes = 0, free_before = 0, free_after = 0, total = 0;
      CUDA_OK(cudaMemGetInfo(&free_before, &total));
      cudaGraphExec_t exec = Record(layers, markers, nullptr, &nodes);
      CUDA_OK(cudaGraphLaunch(exec, layers.stream()));
      CUDA_OK(cudaDeviceSynchronize());
      CUDA_OK(cudaMemGetInfo(&free_after, &total));
      const double recorded = MedianMicros(
          layers.stream(), [&] { CUDA_OK(cudaGraphLaunch(exec, layers.stream())); }, 9, 2);
      CUDA_OK(cudaDeviceSynchronize());
      const double launch = HostMicros([&] { CUDA_OK(cudaGraphLaunch(exec, layers.stream())); });
      CUDA_OK(cudaDeviceSynchronize());
      if (markers == Markers::kNone) plain = recorded;
      const char* name = markers == Markers::kNone       ? "none"
                         : markers == Markers::kPerLayer ? "per layer"
                                                         : "per call";
      std::printf(
          "  markers %-9s eager %9.1f us (gaps %.2f %%), host %7.1f us | recorded %9.1f us (gaps "
          "%.2f %%, "
          "markers %+.2f %%), launch %6.1f us, %zu nodes, %.1f MiB\n",
          name, eager, 100 * (eager / parts - 1), host, recorded, 100 * (recorded / parts - 1),
          100 * (recorded / plain - 1), launch, nodes,
          static_cast<double>(free_before - free_after) / 1048576.0);
      CUDA_OK(cudaGraphExecDestroy(exec));
    }
    if (h == 2048) ExternalEvents(layers);
  }
}

}  // namespace
}  // namespace experiment

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  experiment::Main();
}
