// Recordings as CUDA graphs, captured from a stream in thread-local mode, so that calls of other
// threads neither invalidate a capture nor become part of it.
#include <exception>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"

namespace mt::kernels::cuda {
namespace {

class CudaRecording final : public Recording {
 public:
  // Takes ownership of the instance.
  explicit CudaRecording(cudaGraphExec_t instance) : instance_(instance) {}
  ~CudaRecording() override { cudaGraphExecDestroy(instance_); }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  void Launch(Stream& stream) override { CUDA_CHECK(cudaGraphLaunch(instance_, Raw(stream))); }

 private:
  const cudaGraphExec_t instance_;
};

// The capture of a stream. Take ends it; otherwise the destructor ends it and discards the graph.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (open_) cudaStreamEndCapture(stream_, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    cudaGetLastError();  // clears the error of an invalidated capture, which is not sticky
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<Recording> Take() {
    open_ = false;
    CUDA_CHECK(cudaStreamEndCapture(stream_, &graph_));
    cudaGraphExec_t instance = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&instance, graph_, 0));
    auto recording = std::make_unique<CudaRecording>(instance);
    CUDA_CHECK(cudaGraphUpload(instance, stream_));
    return recording;
  }

 private:
  const cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool open_ = true;
};

}  // namespace

std::unique_ptr<Recording> CudaDevice::Record(Stream& stream, const std::function<void()>& calls,
                                              std::string* why_not) {
  Capture capture(Raw(stream));
  try {
    calls();
    return capture.Take();
  } catch (const DeviceError& error) {
    // A call that cannot be captured. An error of the GPU itself is sticky, so the next call
    // reports it again.
    *why_not = error.what();
    return nullptr;
  }
}

}  // namespace mt::kernels::cuda
