// Events are made beforehand: to record one is all that a step does, on the stream that it belongs
// to, and nothing waits. An event within a capture would become a node of the graph, without a
// time.
#include "kernels/cuda/device/span_clock.h"

#include <cstddef>

#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"

namespace mt::kernels::cuda {

// A host that waits gives its core away.
CudaSpanClock::TimedEvent CudaSpanClock::NewEvent() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventBlockingSync));
  return TimedEvent(event);
}

CudaSpanClock::IdleStream CudaSpanClock::NewStream() {
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return IdleStream(stream);
}

CudaSpanClock::CudaSpanClock(int64_t capacity)
    : SpanClock(capacity), idle_(NewStream()), base_(NewEvent()) {
  events_.reserve(static_cast<size_t>(num_points()));
  for (int64_t i = 0; i < num_points(); ++i) events_.push_back(NewEvent());
}

bool CudaSpanClock::Note(Stream& stream, int64_t point) {
  const cudaStream_t raw = Raw(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(raw, &capture));
  if (capture != cudaStreamCaptureStatusNone) return false;
  std::call_once(has_base_, [&] { CUDA_CHECK(cudaEventRecord(base_.get(), idle_.get())); });
  CUDA_CHECK(cudaEventRecord(events_[static_cast<size_t>(point)].get(), raw));
  return true;
}

double CudaSpanClock::SecondsAt(int64_t point) {
  const TimedEvent& event = events_[static_cast<size_t>(point)];
  CUDA_CHECK(cudaEventSynchronize(base_.get()));
  CUDA_CHECK(cudaEventSynchronize(event.get()));
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, base_.get(), event.get()));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace mt::kernels::cuda
