// Whether a call's first run in a process waits for another kernel that spins, as a collective does
// while a peer is late: then two hosts may wait for each other without end. Products come from a
// table that another process has timed, as a resumed run has it.
//
//   e10 TABLE times    plans the products, times them and writes their table
//   CUDA_MODULE_LOADING=EAGER e10 TABLE spin|wait [run]
//                      reads it, and makes each call twice beside a kernel that spins, or a stream
//                      that waits for a value in memory; run: after Backend::RunPlanned
//
// Prints for each call the host's milliseconds and "waits" where what ran beside it (1 s) ended
// first.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/module.h"
#include "kernels/ops/tuning.h"

namespace {

using namespace mt::kernels;

// spin(stop, ns): one thread looks at *stop until it is not 0, for at most ns.
constexpr char kSpin[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 stop, .param .u64 ns) {
  .reg .u64 %a, %n, %b, %t;
  .reg .u32 %v;
  .reg .pred %p;
  ld.param.u64 %a, [stop];
  ld.param.u64 %n, [ns];
  mov.u64 %b, %globaltimer;
again:
  mov.u64 %t, %globaltimer;
  sub.u64 %t, %t, %b;
  setp.ge.u64 %p, %t, %n;
  @%p bra done;
  ld.volatile.u32 %v, [%a];
  setp.eq.u32 %p, %v, 0;
  @%p bra again;
done:
  ret;
}
)";

double Now() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool times = std::strcmp(argv[2], "times") == 0, spins = std::strcmp(argv[2], "spin") == 0;
  auto loaded = cuda::LoadCudaBackend({});
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    return 1;
  }
  Backend& gpu = **loaded;
  const auto stream = gpu.device().CreateStream(StreamPriority::kLow);
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  const auto bytes = [&](int64_t n) {
    buffers.push_back(gpu.device().Allocate(n, MemoryKind::kDevice));
    cudaMemset(buffers.back()->data(), 0, static_cast<size_t>(n));
    return buffers.back()->data();
  };
  const auto tensor = [&](DType type, Shape shape) {
    return Tensor{bytes(shape.NumElements() * SizeOf(type)), type, shape};
  };
  constexpr DType k16 = DType::kBf16, k32 = DType::kF32;
  constexpr int64_t kT = 4096, kH = 1024, kF = 4096;
  constexpr int64_t kRoom = int64_t{256} << 20;
  const Workspace room{bytes(kRoom), kRoom};
  const Tensor x = tensor(k16, {kT, kH}), up = tensor(k16, {kF, kH}), bias = tensor(k16, {kF}),
               pre = tensor(k16, {kT, kF}), y = tensor(k16, {kT, kF}), down = tensor(k16, {kH, kF}),
               dx = tensor(k16, {kT, kH}), dpre = tensor(k16, {kT, kF}), dw = tensor(k32, {kF, kH}),
               dbias = tensor(k32, {kF});
  const LinearForwardArgs forward{.x = x, .w = up, .bias = bias, .y = y, .workspace = room};
  const LinearForwardActArgs act{
      .x = x, .w = up, .bias = bias, .pre = pre, .y = y, .workspace = room};
  const LinearInputGradArgs input{.dy = y, .w = up, .dx = dx, .workspace = room};
  const LinearInputGradActArgs input_act{
      .dy = dx, .w = down, .pre = pre, .dpre = dpre, .dbias = dbias, .workspace = room};
  const LinearWeightGradArgs weight{
      .dy = y, .x = x, .mode = GradMode::kAdd, .dw = dw, .dbias = dbias, .workspace = room};
  LinearOps& linear = gpu.linear();
  linear.Plan(forward);
  linear.Plan(act);
  linear.Plan(input);
  linear.Plan(input_act);
  linear.Plan(weight);
  TuningTable& table = *gpu.tuning();
  if (times) {
    if (!table.Time(table.Missing()).ok()) return 1;
    std::ofstream out(argv[1]);
    for (const TuningEntry& e : table.Entries()) out << e.key << '\t' << e.choice << '\n';
    return 0;
  }
  std::vector<TuningEntry> entries;
  std::ifstream in(argv[1]);
  for (std::string line; std::getline(in, line);) {
    const size_t tab = line.find('\t');
    entries.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  const auto refused = table.Import(table.Identity(), entries);
  if (!refused.ok() || !refused->empty() || !table.Missing().empty()) return 1;

  AttentionShape shape{.dtype = k16, .s = 1024, .b = 4, .a = 16, .g = 16, .d = 64, .scale = 0.125};
  const auto view = [&] {
    return HeadView{
        .data = bytes(kT * kH * 2), .s_stride = 4 * kH, .b_stride = kH, .head_stride = 64};
  };
  const HeadView q = view(), k = view(), v = view(), o = view(), dout = view(), dq = view(),
                 dk = view(), dv = view();
  const Tensor lse = tensor(k32, {4, 16, 1024});
  AttentionForwardArgs look{
      .shape = shape, .q = q, .k = k, .v = v, .o = o, .lse = lse, .workspace = room};
  AttentionGradArgs back{.shape = shape,
                         .q = q,
                         .k = k,
                         .v = v,
                         .o = o,
                         .lse = lse,
                         .do_ = dout,
                         .dq = dq,
                         .dk = dk,
                         .dv = dv,
                         .deterministic = false,
                         .workspace = room};
  AttentionGradArgs exact = back;
  exact.deterministic = true;
  gpu.attention().Plan(look);
  gpu.attention().Plan(back);
  gpu.attention().Plan(exact);
  std::printf("attention by %s\n", gpu.AttentionKernels().c_str());
  if (argc > 3) {
    const double begin = Now();
    gpu.RunPlanned();
    std::printf("RunPlanned %.1f ms\n", Now() - begin);
  }

  struct Call {
    const char* name;
    std::function<void()> run;
  };
  const Call calls[] = {
      {"row sum", [&] { gpu.vector().RowSum(*stream, y, GradMode::kOverwrite, dbias); }},
      {"product with bias", [&] { linear.Forward(*stream, forward); }},
      {"product with GELU", [&] { linear.ForwardAct(*stream, act); }},
      {"input gradient", [&] { linear.InputGrad(*stream, input); }},
      {"input gradient through GELU", [&] { linear.InputGradAct(*stream, input_act); }},
      {"weight gradient", [&] { linear.WeightGrad(*stream, weight); }},
      {"attention", [&] { gpu.attention().Forward(*stream, look); }},
      {"attention's gradient", [&] { gpu.attention().Grad(*stream, back); }},
      {"attention's gradient, deterministic", [&] { gpu.attention().Grad(*stream, exact); }}};
  int* stop = nullptr;
  cudaHostAlloc(reinterpret_cast<void**>(&stop), sizeof(int), cudaHostAllocMapped);
  cudaStream_t side;
  cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  cudaEvent_t ended;
  cudaEventCreateWithFlags(&ended, cudaEventDisableTiming);
  CUmodule module;
  CUfunction spin;
  if (cuModuleLoadData(&module, kSpin) != CUDA_SUCCESS ||
      cuModuleGetFunction(&spin, module, "spin") != CUDA_SUCCESS)
    return 1;
  uint64_t ns = 1000000000;
  void* parameters[] = {&stop, &ns};
  std::atomic<int> calls_made = 0;
  std::thread late;
  const auto start = [&] {
    if (!spins) {  // another thread ends the wait, after a second or with the call
      if (cuStreamWaitValue32(side, reinterpret_cast<CUdeviceptr>(stop), 1,
                              CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS)
        std::abort();
      late = std::thread([&, seen = calls_made.load()] {
        for (int i = 0; i < 1000 && calls_made.load() == seen; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        *static_cast<volatile int*>(stop) = 1;
      });
      return;
    }
    if (cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, side, parameters, nullptr) != CUDA_SUCCESS)
      std::abort();
  };
  *stop = 1;
  start();
  ++calls_made;
  if (late.joinable()) late.join();
  cudaDeviceSynchronize();
  for (const Call& call : calls) {
    for (int turn = 1; turn <= 2; ++turn) {
      *stop = 0;
      start();
      cudaEventRecord(ended, side);
      const double begin = Now();
      call.run();
      const double took = Now() - begin;
      const bool waited = cudaEventQuery(ended) == cudaSuccess;
      ++calls_made;
      *stop = 1;
      if (late.joinable()) late.join();
      cudaDeviceSynchronize();
      std::printf("%-40s call %d %9.3f ms%s\n", call.name, turn, took, waited ? "  waits" : "");
    }
  }
  return 0;
}
