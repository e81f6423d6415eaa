// A backend that hands each call of an op, as a value, to a sink, which makes it on another backend
// at once (logging_backend.h) or later (kernels/async). A fused entry is one call. Plans and sizes
// are the other backend's; copies and fills by the Device are not ops.
#pragma once

#include <memory>

#include "kernels/ops/backend.h"
#include "kernels/replay/op_call.h"

namespace mt::kernels::replay {

class CallSink {
 public:
  virtual ~CallSink() = default;
  // The device whose streams and memory the calls name.
  virtual Device& device() = 0;
  // Takes a call, valid until this returns (OpCall::Clone keeps it).
  virtual void Take(Stream& stream, const OpCall& call) = 0;
};

// `backend` is not owned and must outlive the result, which is as thread-safe as both.
std::unique_ptr<Backend> MakeCallBackend(Backend* backend, std::unique_ptr<CallSink> sink);

}  // namespace mt::kernels::replay
