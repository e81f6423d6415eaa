// Spans of a GPU's streams (kernels/core/span_clock.h): a pair of CUDA events each. Their times
// have a resolution of about half a microsecond and are 32-bit floats of milliseconds, so they
// are counted from the moment of the first span and not from that of the clock's making.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/core/span_clock.h"

namespace mt::kernels::cuda {

class CudaSpanClock final : public SpanClock {
 public:
  // Makes the events, of the thread's current GPU.
  explicit CudaSpanClock(int64_t capacity);

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  struct DestroyStream {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  using TimedEvent = std::unique_ptr<CUevent_st, DestroyEvent>;
  using IdleStream = std::unique_ptr<CUstream_st, DestroyStream>;
  static TimedEvent NewEvent();
  static IdleStream NewStream();

  bool Note(Stream& stream, int64_t point) override;
  double SecondsAt(int64_t point) override;

  const IdleStream idle_;  // has nothing but the base, which it passes at once
  const TimedEvent base_;  // recorded before the first point
  std::once_flag has_base_;
  std::vector<TimedEvent> events_;  // by point
};

}  // namespace mt::kernels::cuda
