// The sink of the logging backend: note the call, then make it on the wrapped backend.
#include "kernels/replay/logging_backend.h"

#include "kernels/replay/call_backend.h"

namespace mt::kernels::replay {
namespace {

class LoggingSink final : public CallSink {
 public:
  LoggingSink(Backend* backend, CallLog* log) : backend_(*backend), log_(*log) {}
  Device& device() override { return backend_.device(); }
  void Take(Stream& stream, const OpCall& call) override {
    log_.Note(stream, call);
    call.Run(backend_, stream);
  }

 private:
  Backend& backend_;
  CallLog& log_;
};

}  // namespace

std::unique_ptr<Backend> MakeLoggingBackend(Backend* backend, CallLog* log) {
  return MakeCallBackend(backend, std::make_unique<LoggingSink>(backend, log));
}

}  // namespace mt::kernels::replay
