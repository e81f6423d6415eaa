// All series of a method are created in advance, from the service descriptors, so a call only looks
// up its path and counts.
#include "daemon/service/call_meter.h"

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>

#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;
using grpc::experimental::InterceptionHookPoints;

// Label values, indexed by grpc::StatusCode. What no call of ours ends with (OUT_OF_RANGE,
// UNAUTHENTICATED) has no series of its own: they count in the budget (T2).
constexpr std::array kCodes = {
    "OK",       "Cancelled",     "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "Unknown",       "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unknown"};
// Upper bounds in seconds; the alert on slow calls compares p99 with 0.15 s.
const std::vector<double> kSeconds = {0.005, 0.025, 0.05, 0.15, 0.5, 2};

}  // namespace

struct CallMeter::Methods {
  struct Series {
    metrics::Counter started;
    std::array<metrics::Counter, kCodes.size()> handled;
    metrics::Histogram seconds;
    bool unary = false;
  };
  std::map<std::string, Series, std::less<>> by_path;  // "/megatrain.v1.Jobs/Submit"
};

namespace {

class CallCounter final : public grpc::experimental::Interceptor {
 public:
  explicit CallCounter(CallMeter::Methods::Series* series)
      : series_(series), start_(std::chrono::steady_clock::now()) {
    series_->started.Add();
  }
  ~CallCounter() override {
    // A call that ends without a status was abandoned by its client.
    series_->handled.at(static_cast<size_t>(code_)).Add();
    if (!series_->unary) return;
    const auto time = std::chrono::steady_clock::now() - start_;
    series_->seconds.Observe(std::chrono::duration<double>(time).count());
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code = static_cast<size_t>(methods->GetSendStatus().error_code());
      code_ = code < kCodes.size() ? code : size_t{grpc::StatusCode::UNKNOWN};
    }
    methods->Proceed();
  }

 private:
  CallMeter::Methods::Series* series_;
  std::chrono::steady_clock::time_point start_;
  size_t code_ = grpc::StatusCode::CANCELLED;
};

class CounterFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CounterFactory(CallMeter::Methods* methods) : methods_(methods) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const auto found = methods_->by_path.find(std::string_view(info->method()));
    // gRPC takes ownership. Calls that are not in the table (the health service) get no
    // interceptor.
    return found == methods_->by_path.end() ? nullptr : new CallCounter(&found->second);
  }

 private:
  CallMeter::Methods* methods_;
};

}  // namespace

CallMeter::CallMeter(metrics::Registry* registry) : methods_(std::make_unique<Methods>()) {
  const auto started = registry->AddCounter("grpc_server_started_total", "Calls begun.");
  const auto handled = registry->AddCounter("grpc_server_handled_total", "Calls ended, by code.");
  const auto seconds =
      registry->AddHistogram("grpc_server_handling_seconds", "Duration of unary calls.", kSeconds);
  for (const auto* file :
       {v1::SubmitRequest::descriptor()->file(), v1::Register::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        const auto* method = service->method(j);
        const metrics::Labels labels = {{"grpc_service", service->full_name()},
                                        {"grpc_method", method->name()}};
        Methods::Series series;
        series.started = started.With(labels);
        for (size_t code = 0; code < kCodes.size(); ++code) {
          metrics::Labels with_code = labels;
          with_code["grpc_code"] = kCodes[code];
          series.handled.at(code) = handled.With(with_code);
        }
        series.unary = !method->client_streaming() && !method->server_streaming();
        if (series.unary) series.seconds = seconds.With(labels);
        methods_->by_path.emplace("/" + service->full_name() + "/" + method->name(), series);
      }
    }
  }
}

CallMeter::~CallMeter() = default;

void CallMeter::Install(grpc::ServerBuilder* builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
  creators.push_back(std::make_unique<CounterFactory>(methods_.get()));
  builder->experimental().SetInterceptorCreators(std::move(creators));
}

}  // namespace mt::daemon
