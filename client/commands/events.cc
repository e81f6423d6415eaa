// `mtctl events`: prints stored events and, with -f, new ones, across restarts of the coordinator.
#include "client/commands/events.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/output/json.h"
#include "client/session/interrupt.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct EventsArgs {
  std::string job;
  bool follow = false;
  int64_t since = 0;
  int limit = 0;
  std::vector<std::string> types;
};

v1::WatchEventsRequest MakeRequest(const EventsArgs& args, const GlobalOptions& options) {
  v1::WatchEventsRequest request;
  if (!args.job.empty()) *request.mutable_job() = MakeJobRequest(options, args.job).job();
  request.set_since_seq(args.since);
  request.set_limit(args.limit);
  request.set_follow(args.follow);
  for (const std::string& type : args.types) request.add_types(type);
  return request;
}

// Prints {"events": [...]} or a table, and reports on stderr which events are missing.
ExitCode PrintEvents(const v1::EventsChunk& all, const EventsArgs& args,
                     const GlobalOptions& options) {
  const TableArgs table = MakeTableArgs(options);
  View view{.message = &all, .items = "events"};
  view.table.push_back(EventHeader(table));
  for (const v1::Event& event : all.events()) {
    view.table.push_back(EventRow(event, table));
    view.names.push_back(std::to_string(event.seq()));
  }
  if (all.events().empty()) std::fprintf(stderr, "no events\n");
  if (args.since > 0 && args.since < all.oldest_seq()) {
    std::fprintf(stderr, "mtctl: events before %lld are no longer kept\n",
                 static_cast<long long>(all.oldest_seq()));
  }
  if (all.dropped() > 0) {
    std::fprintf(stderr, "mtctl: %lld events left out: this program read too slowly\n",
                 static_cast<long long>(all.dropped()));
  }
  return Print(view, options);
}

ExitCode ListEvents(const EventsArgs& args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  v1::EventsChunk all;
  const Status status =
      (*api)->WatchEvents(MakeRequest(args, options), &stopper, [&](const v1::EventsChunk& chunk) {
        all.mutable_events()->MergeFrom(chunk.events());
        all.set_dropped(all.dropped() + chunk.dropped());
        if (chunk.oldest_seq() != 0) all.set_oldest_seq(chunk.oldest_seq());
        return true;
      });
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  if (!status.ok()) return Complain(status);
  return PrintEvents(all, args, options);
}

std::string FollowedEvent(const v1::Event& event, const GlobalOptions& options) {
  if (options.output == OutputFormat::kName) return std::to_string(event.seq()) + "\n";
  if (options.output == OutputFormat::kNone) return "";
  if (IsStructured(options.output)) return RenderTree(MessageToJson(event), OutputFormat::kJsonl);
  return EventLine(event, MakeTableArgs(options)) + "\n";
}

// Resumes after the last event seen when the connection breaks or the stream dropped events.
ExitCode FollowEvents(EventsArgs args, const GlobalOptions& options) {
  if (options.output == OutputFormat::kJson || options.output == OutputFormat::kYaml)
    return Complain(base::InvalidArgument("events --follow prints line by line: use -o jsonl"),
                    kExitUsage);
  // What is away may come back; what nobody named does not.
  if (const auto endpoint = ResolveEndpoint(options); !endpoint.ok())
    return Complain(endpoint.status());
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  bool away = false;
  ExitCode written = kExitOk;
  while (!stopper.stopped()) {
    auto api = ConnectApi(options);
    Status status = api.status();
    bool lagged = false;
    if (api.ok()) {
      status = (*api)->WatchEvents(MakeRequest(args, options), &stopper,
                                   [&](const v1::EventsChunk& chunk) {
                                     away = false;
                                     for (const v1::Event& event : chunk.events()) {
                                       args.since = std::max(args.since, event.seq() + 1);
                                       written = PrintText(FollowedEvent(event, options));
                                       if (written != kExitOk) return false;
                                     }
                                     lagged = chunk.dropped() > 0 && args.since > 0;
                                     return !lagged;
                                   });
    }
    if (written != kExitOk) return written;
    if (stopper.stopped()) break;
    if (lagged) continue;
    if (status.ok()) return kExitOk;  // the coordinator ended the stream: the job was deleted
    if (ExitCodeOf(status) != kExitConnection && !absl::IsCancelled(status))
      return Complain(status);
    if (!away) (void)Complain(status);
    away = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return kExitInterrupted;
}

}  // namespace

void AddEventsTo(CLI::App* command, const CommandContext& context) {
  auto args = std::make_shared<EventsArgs>();
  command->add_option("job", args->job, "Name or uid (none: of all jobs and nodes)");
  command->add_flag("-f,--follow", args->follow, "Go on with new ones; Ctrl-C ends it");
  command->add_option("--since", args->since, "From this sequence number on (0: the last 100)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--limit", args->limit, "Most past events, the newest ones (0: 1,000)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--types", args->types, "Only these: StateChanged,CheckpointSaved,...")
      ->delimiter(',');
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return args->follow ? FollowEvents(*args, *options) : ListEvents(*args, *options);
    };
  });
}

void AddEvents(const CommandContext& context) {
  AddEventsTo(context.app->add_subcommand("events", "What happened to a job, or to all"), context);
}

}  // namespace mt::client
