#include "daemon/service/user_services.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/core/api.h"
#include "daemon/service/stream_writer.h"
#include "daemon/service/unary.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::daemon {
namespace {

using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;

// `open(core)` gives the stream or why there is none; `close(core, job uid, subscription)` forgets
// it.
template <class Message, class Item, class Open, class Close>
grpc::ServerWriteReactor<Message>* RunStream(CoreLoop* loop, StreamWriter<Message, Item>* writer,
                                             Open open, Close close) {
  loop->Post([loop, handle = writer->handle(), open = std::move(open), close](Core& core) {
    auto followed = open(core);
    core.ledger().AfterCommit(
        [loop, handle, close, followed = std::move(followed)](const Status& commit) mutable {
          if (!commit.ok() || !followed.ok()) {
            handle.Fail(commit.ok() ? followed.status() : StoreFailed(commit));
            return;
          }
          const auto source = followed->subscription;
          handle.Start(source, [loop, close, uid = followed->job_uid, source] {
            loop->Post([close, uid, source](Core& later) { close(later, uid, source.get()); });
          });
        });
  });
  return writer;
}

class JobsService final : public v1::Jobs::CallbackService {
 public:
  explicit JobsService(CoreLoop* loop) : loop_(loop) {}

  Unary* Submit(Context* context, const v1::SubmitRequest* request,
                v1::SubmitResponse* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().Submit(*request, ActorOf(*context), response);
    });
  }
  Unary* Validate(Context* context, const v1::ValidateRequest* request,
                  v1::ValidateResponse* response) override {
    Api::Validate(*request, response);
    Unary* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  Unary* Get(Context* context, const v1::GetJobRequest* request, v1::Job* response) override {
    return RunUnary(loop_, context, [request, response](Core& core) {
      return core.api().GetJob(*request, response);
    });
  }
  Unary* List(Context* context, const v1::ListJobsRequest* request,
              v1::ListJobsResponse* response) override {
    return RunUnary(loop_, context, [request, response](Core& core) {
      return core.api().ListJobs(*request, response);
    });
  }
  Unary* Cancel(Context* context, const v1::CancelRequest* request,
                v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().Cancel(*request, ActorOf(*context), response);
    });
  }
  grpc::ServerWriteReactor<v1::Job>* Watch(Context* context,
                                           const v1::GetJobRequest* request) override {
    using Writer = StreamWriter<v1::Job, std::shared_ptr<const v1::Job>>;
    auto* writer = new Writer(context, [](v1::Job* out, const auto& job, int64_t) { *out = *job; });
    return RunStream(
        loop_, writer, [request = *request](Core& core) { return core.api().WatchJob(request); },
        [](Core& core, const std::string& uid, const JobSubscription* gone) {
          core.feeds().UnwatchJob(uid, gone);
        });
  }

 private:
  CoreLoop* loop_;
};

class OperationsService final : public v1::Operations::CallbackService {
 public:
  explicit OperationsService(CoreLoop* loop) : loop_(loop) {}

  Unary* Get(Context* context, const v1::GetOperationRequest* request,
             v1::Operation* response) override {
    return RunUnary(loop_, context, [request, response](Core& core) {
      return core.api().GetOperation(*request, response);
    });
  }
  Unary* List(Context* context, const v1::ListOperationsRequest* request,
              v1::ListOperationsResponse* response) override {
    return RunUnary(loop_, context, [request, response](Core& core) {
      return core.api().ListOperations(*request, response);
    });
  }
  Unary* Wait(Context* context, const v1::WaitOperationRequest* request,
              v1::Operation* response) override {
    Unary* reactor = context->DefaultReactor();
    loop_->Post([reactor, context, request, response](Core& core) {
      core.api().WaitOperation(*request, [=](const Status& status, const v1::Operation* operation) {
        if (operation != nullptr) *response = *operation;
        reactor->Finish(rpc::ToGrpc(status, context));
      });
    });
    return reactor;
  }

 private:
  CoreLoop* loop_;
};

class NodesService final : public v1::Nodes::CallbackService {
 public:
  explicit NodesService(CoreLoop* loop) : loop_(loop) {}

  Unary* List(Context* context, const v1::ListNodesRequest*,
              v1::ListNodesResponse* response) override {
    return RunUnary(loop_, context, [response](Core& core) {
      core.api().ListNodes(response);
      return OkStatus();
    });
  }

 private:
  CoreLoop* loop_;
};

class JobTelemetryService final : public v1::JobTelemetry::CallbackService {
 public:
  explicit JobTelemetryService(CoreLoop* loop) : loop_(loop) {}

  grpc::ServerWriteReactor<v1::MetricsChunk>* StreamMetrics(
      Context* context, const v1::StreamMetricsRequest* request) override {
    using Writer = StreamWriter<v1::MetricsChunk, MetricItem>;
    auto* writer =
        new Writer(context, [](v1::MetricsChunk* out, const MetricItem& item, int64_t dropped) {
          if (item.step != nullptr) *out->add_steps() = *item.step;
          if (item.eval != nullptr) *out->add_evals() = *item.eval;
          out->set_dropped(dropped);
        });
    return RunStream(
        loop_, writer,
        [request = *request](Core& core) { return core.api().WatchMetrics(request); },
        [](Core& core, const std::string& uid, const MetricsSubscription* gone) {
          core.feeds().UnwatchMetrics(uid, gone);
        });
  }
  grpc::ServerWriteReactor<v1::LogChunk>* TailLogs(Context* context,
                                                   const v1::TailLogsRequest* request) override {
    using Writer = StreamWriter<v1::LogChunk, std::shared_ptr<const v1::LogChunk>>;
    auto* writer = new Writer(context, [](v1::LogChunk* out, const auto& chunk, int64_t dropped) {
      *out = *chunk;
      out->set_dropped(dropped);
    });
    return RunStream(
        loop_, writer, [request = *request](Core& core) { return core.api().TailLogs(request); },
        [](Core& core, const std::string&, const LogSubscription* gone) {
          core.feeds().UntailLogs(gone);
        });
  }

 private:
  CoreLoop* loop_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeUserServices(CoreLoop* loop) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<JobsService>(loop));
  services.push_back(std::make_unique<OperationsService>(loop));
  services.push_back(std::make_unique<NodesService>(loop));
  services.push_back(std::make_unique<JobTelemetryService>(loop));
  return services;
}

}  // namespace mt::daemon
