// The service JobTelemetry: streams of metrics, events and logs, and queries of the stored history.
#include <memory>
#include <utility>

#include "daemon/feeds/event_feed.h"
#include "daemon/feeds/feeds.h"
#include "daemon/service/history_reader.h"
#include "daemon/service/run_stream.h"
#include "daemon/service/unary.h"
#include "daemon/service/user_services.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::daemon {
namespace {

using Context = grpc::CallbackServerContext;

// A backlog of ten thousand events takes forty messages.
constexpr int kEventsPerMessage = 256;

class JobTelemetryService final : public v1::JobTelemetry::CallbackService {
 public:
  JobTelemetryService(CoreLoop* loop, HistoryReader* reader) : loop_(loop), reader_(reader) {}

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
        [request = *request](Core& core) { return core.api().streams().WatchMetrics(request); },
        [](Core& core, const std::string& uid, const MetricsSubscription* gone) {
          core.feeds().UnwatchMetrics(uid, gone);
        });
  }
  // The job is looked up on the core's thread, and its history is read on the reader's.
  grpc::ServerUnaryReactor* QueryHistory(Context* context, const v1::QueryHistoryRequest* request,
                                         v1::History* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    loop_->Post([reader = reader_, reactor, context, request, response](Core& core) {
      auto answer = core.api().streams().QueryHistory(*request);
      if (!answer.ok()) {
        reactor->Finish(rpc::ToGrpc(answer.status(), context));
        return;
      }
      reader->Post([reactor, response, answer = std::move(answer).value()] {
        answer(response);
        reactor->Finish(grpc::Status::OK);
      });
    });
    return reactor;
  }
  grpc::ServerUnaryReactor* ReadRanks(Context* context, const v1::ReadRanksRequest* request,
                                      v1::ReadRanksResponse* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().streams().ReadRanks(*request, response);
    });
  }
  grpc::ServerWriteReactor<v1::EventsChunk>* WatchEvents(
      Context* context, const v1::WatchEventsRequest* request) override {
    using Writer = StreamWriter<v1::EventsChunk, EventItem>;
    auto* writer = new Writer(
        context,
        [](v1::EventsChunk* out, const EventItem& item, int64_t dropped) {
          if (item.event != nullptr) *out->add_events() = *item.event;
          if (item.oldest_seq != 0) out->set_oldest_seq(item.oldest_seq);
          out->set_dropped(out->dropped() + dropped);
        },
        kEventsPerMessage);
    return RunStream(
        loop_, writer,
        [request = *request](Core& core) { return core.api().streams().WatchEvents(request); },
        [](Core& core, const std::string&, const EventSubscription* gone) {
          core.events().Unwatch(gone);
        });
  }
  grpc::ServerWriteReactor<v1::LogChunk>* TailLogs(Context* context,
                                                   const v1::TailLogsRequest* request) override {
    return SendChunks(context, [request = *request](Core& core) {
      return core.api().streams().TailLogs(request);
    });
  }
  grpc::ServerWriteReactor<v1::LogChunk>* ReadTrace(Context* context,
                                                    const v1::ReadTraceRequest* request) override {
    return SendChunks(context, [request = *request](Core& core) {
      return core.api().streams().ReadTrace(request);
    });
  }
  grpc::ServerWriteReactor<v1::LogChunk>* ReadOutput(
      Context* context, const v1::ReadOutputRequest* request) override {
    return SendChunks(context, [request = *request](Core& core) {
      return core.api().streams().ReadOutput(request);
    });
  }

 private:
  // A stream of what `open` subscribes to: logs, a trace, an output.
  template <class Open>
  grpc::ServerWriteReactor<v1::LogChunk>* SendChunks(Context* context, Open open) {
    using Writer = StreamWriter<v1::LogChunk, std::shared_ptr<const v1::LogChunk>>;
    auto* writer = new Writer(context, [](v1::LogChunk* out, const auto& chunk, int64_t dropped) {
      *out = *chunk;
      out->set_dropped(dropped);
    });
    return RunStream(loop_, writer, std::move(open),
                     [](Core& core, const std::string&, const LogSubscription* gone) {
                       core.feeds().UntailLogs(gone);
                     });
  }

  CoreLoop* loop_;
  HistoryReader* reader_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTelemetryService(CoreLoop* loop, HistoryReader* reader) {
  return std::make_unique<JobTelemetryService>(loop, reader);
}

}  // namespace mt::daemon
