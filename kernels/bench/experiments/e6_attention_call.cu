// E6: the cost that a call of CudnnAttention adds to cuDNN's plan: the nodes of a captured call by
// name, its time when launched from the host and when replayed (kernels alone), and the price of
// the deterministic gradient. Built with the module's own sources:
//   nvcc ... e6_attention_call.cu cudnn_attention.cc cudnn_graph.cc cuda_device.cc cuda_check.cc
// Legend: as in kernels/ops/attention.h.
#include <cmath>
#include <string>

#include "kernels/bench/experiments/measure.cuh"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace experiment {
namespace {

using mt::kernels::AttentionForwardArgs;
using mt::kernels::AttentionGradArgs;
using mt::kernels::DType;
using mt::kernels::HeadView;
using mt::kernels::cuda::CudaStream;
using mt::kernels::cuda::CudnnAttention;

struct Shape {
  int64_t b, s, a, g, d;
};

// Prints the nodes of a CUDA graph: kernels by name, anything else by its kind.
void PrintNodes(cudaGraph_t graph) {
  size_t count = 0;
  CUDA_OK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CUDA_OK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CUDA_OK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) {
      cudaKernelNodeParams params{};
      const char* name = "a kernel of the driver API";
      if (cudaGraphKernelNodeGetParams(node, &params) != cudaSuccess ||
          cudaFuncGetName(&name, params.func) != cudaSuccess) {
        cudaGetLastError();  // clears the error of kernels in cuDNN's own modules
      }
      std::printf("    kernel, grid %u x %u x %u, %.60s\n", params.gridDim.x, params.gridDim.y,
                  params.gridDim.z, name);
    } else {
      std::printf("    %s\n", type == cudaGraphNodeTypeMemset ? "memset" : "another node");
    }
  }
}

void Report(const CudaStream& stream, const std::string& what, const std::function<void()>& call) {
  call();
  const double eager = MedianMicros(stream.raw(), call, 15, 20);
  cudaGraph_t graph;
  CUDA_OK(cudaStreamBeginCapture(stream.raw(), cudaStreamCaptureModeThreadLocal));
  call();
  CUDA_OK(cudaStreamEndCapture(stream.raw(), &graph));
  cudaGraphExec_t exec;
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  const double replayed = MedianMicros(
      stream.raw(), [&] { CUDA_OK(cudaGraphLaunch(exec, stream.raw())); }, 15, 20);
  const double again = MedianMicros(stream.raw(), call, 15, 20);
  std::printf("%s: called %.1f and %.1f us, replayed %.1f us: %.3f\n", what.c_str(), eager, again,
              replayed, (eager + again) / 2 / replayed);
  PrintNodes(graph);
  CUDA_OK(cudaGraphExecDestroy(exec));
  CUDA_OK(cudaGraphDestroy(graph));
}

void Measure(CudnnAttention* attention, CudaStream* stream, const Shape& z) {
  const int64_t q_width = z.a * z.d, width = (z.a + 2 * z.g) * z.d, rows = z.s * z.b;
  bf16* const qkv = RandomBf16(rows * width, 1);
  bf16* const dqkv = RandomBf16(rows * width, 2);
  bf16* const o = RandomBf16(rows * q_width, 3);
  bf16* const dout = RandomBf16(rows * q_width, 4);
  const auto packed = [&](bf16* data, int64_t first) {
    return HeadView{data + first * z.d, z.b * width, width, z.d};
  };
  const auto plain = [&](bf16* data) { return HeadView{data, z.b * q_width, q_width, z.d}; };
  AttentionForwardArgs forward{
      .shape = {.dtype = DType::kBf16,
                .s = z.s,
                .b = z.b,
                .a = z.a,
                .g = z.g,
                .d = z.d,
                .scale = 1 / std::sqrt(static_cast<double>(z.d))},
      .q = packed(qkv, 0),
      .k = packed(qkv, z.a),
      .v = packed(qkv, z.a + z.g),
      .o = plain(o),
      .lse = {Allocate<float>(z.b * z.a * z.s), DType::kF32, {z.b, z.a, z.s}}};
  const auto scratch = [](int64_t bytes) {
    return mt::kernels::Workspace{Allocate<char>(bytes + 1), bytes};
  };
  if (!attention->Has(forward)) return;
  forward.workspace = scratch(attention->WorkspaceBytes(forward));
  std::printf("b %ld, s %ld, heads %ld/%ld of %ld\n", z.b, z.s, z.a, z.g, z.d);
  Report(*stream, "  forward", [&] { attention->Forward(*stream, forward); });
  for (const bool deterministic : {false, true}) {
    AttentionGradArgs grad{.shape = forward.shape,
                           .q = forward.q,
                           .k = forward.k,
                           .v = forward.v,
                           .o = forward.o,
                           .lse = forward.lse,
                           .do_ = plain(dout),
                           .dq = packed(dqkv, 0),
                           .dk = packed(dqkv, z.a),
                           .dv = packed(dqkv, z.a + z.g),
                           .deterministic = deterministic};
    if (!attention->Has(grad)) continue;
    grad.workspace = scratch(attention->WorkspaceBytes(grad));
    Report(*stream,
           std::string(deterministic ? "  gradient, deterministic" : "  gradient") + ", " +
               std::to_string(grad.workspace.bytes >> 20) + " MiB",
           [&] { attention->Grad(*stream, grad); });
    CUDA_OK(cudaFree(grad.workspace.data));
  }
  for (bf16* data : {qkv, dqkv, o, dout}) CUDA_OK(cudaFree(data));
}

}  // namespace
}  // namespace experiment

int main() {
  using namespace experiment;
  CUDA_OK(cudaSetDevice(0));
  const mt::kernels::cuda::DeviceLimits limits{.ordinal = 0, .num_sms = 132, .major = 9};
  CudnnAttention attention(limits);
  CudaStream stream(0, mt::kernels::StreamPriority::kLow);
  for (const Shape& z :
       {Shape{32, 1024, 12, 12, 64}, Shape{8, 2048, 16, 16, 128}, Shape{8, 2048, 32, 4, 64}}) {
    Measure(&attention, &stream, z);
  }
  return 0;
}
