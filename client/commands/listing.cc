// One fetch per interval; the terminal is redrawn in place, other outputs get only changed items.
#include "client/commands/listing.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

#include "client/output/format.h"
#include "client/output/json.h"
#include "client/session/interrupt.h"

namespace mt::client {
namespace {

using google::protobuf::Message;

View MakeView(const Listing& listing, const GlobalOptions& options) {
  View view{.message = listing.message.get(), .items = listing.items, .names = listing.names};
  if (IsTable(options.output)) view.table = listing.rows(MakeTableArgs(options));
  return view;
}

ExitCode ShowOnce(const Listing& listing, const GlobalOptions& options) {
  if (listing.names.empty() && IsTable(options.output))
    std::fprintf(stderr, "%s\n", listing.empty.c_str());
  const ExitCode code = Print(MakeView(listing, options), options);
  if (code != kExitOk || options.output != OutputFormat::kTable) return code;
  return PrintText(listing.notes);
}

// Item `index` of the listing as one line of JSON.
std::string ItemJson(const Listing& listing, size_t index) {
  const Message& whole = *listing.message;
  const auto* field = whole.GetDescriptor()->FindFieldByName(std::string(listing.items));
  const Message& item =
      whole.GetReflection()->GetRepeatedMessage(whole, field, static_cast<int>(index));
  return RenderTree(MessageToJson(item), OutputFormat::kJsonl);
}

// Prints the items whose row has changed. Rows are compared with the current time set to zero, so
// that a growing age is no change.
class Changes {
 public:
  explicit Changes(const GlobalOptions& options) : options_(options) {}

  ExitCode Show(const Listing& listing) {
    const TableArgs args = MakeTableArgs(options_);
    TableArgs ageless = args;
    ageless.style.now_us = 0;
    const Rows now = listing.rows(ageless);
    const Rows shown = listing.rows(args);
    Rows changed;
    std::string text;
    if (seen_.empty()) changed.push_back(shown.front());
    std::map<std::string, std::vector<std::string>> seen;
    for (size_t i = 0; i < listing.names.size(); ++i) {
      const auto old = seen_.find(listing.names[i]);
      const bool same = old != seen_.end() && old->second == now[i + 1];
      seen.emplace(listing.names[i], now[i + 1]);
      if (same) continue;
      changed.push_back(shown[i + 1]);
      if (options_.output == OutputFormat::kJsonl) text += ItemJson(listing, i);
      if (options_.output == OutputFormat::kName) text += listing.names[i] + "\n";
    }
    const bool header_only = seen_.empty() && changed.size() == 1;
    seen_ = std::move(seen);
    if (IsTable(options_.output) && !header_only) text = Table(changed, &widths_);
    return PrintText(text);
  }

 private:
  const GlobalOptions& options_;
  std::map<std::string, std::vector<std::string>> seen_;
  std::vector<size_t> widths_;
};

ExitCode WatchListing(const WatchArgs& args, const GlobalOptions& options,
                      const std::function<StatusOr<Listing>(const Api&)>& fetch) {
  if (options.output == OutputFormat::kJson || options.output == OutputFormat::kYaml)
    return Complain(base::InvalidArgument("get --watch prints line by line: use -o jsonl"),
                    kExitUsage);
  const InterruptScope scope;
  const bool redraw = ::isatty(STDOUT_FILENO) == 1 && IsTable(options.output);
  // What is away may come back; what nobody named does not.
  if (const auto endpoint = ResolveEndpoint(options); !endpoint.ok())
    return Complain(endpoint.status());
  Changes changes(options);
  bool away = false;
  auto api = ConnectApi(options);
  while (!InterruptScope::Interrupted()) {
    if (!api.ok()) api = ConnectApi(options);
    const auto listing = api.ok() ? fetch(**api) : StatusOr<Listing>(api.status());
    if (listing.ok()) {
      away = false;
      if (redraw) std::fputs("\033[H\033[2J", stdout);
      const ExitCode code = redraw ? ShowOnce(*listing, options) : changes.Show(*listing);
      if (code != kExitOk) return code;
    } else if (ExitCodeOf(listing.status()) != kExitConnection) {
      return Complain(listing.status());
    } else if (!away) {
      away = true;
      (void)Complain(listing.status());
    }
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(args.interval_s);
    while (!InterruptScope::Interrupted() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return kExitInterrupted;
}

}  // namespace

void AddWatchFlags(CLI::App* command, WatchArgs* args) {
  auto* watch =
      command->add_flag("-w,--watch", args->watch, "Go on with what changes; Ctrl-C ends it");
  command->add_option("--interval", args->interval_s, "Seconds between two looks of --watch")
      ->check(CLI::Range(0.1, 3600.0))
      ->needs(watch)
      ->capture_default_str();
}

ExitCode ShowListing(const WatchArgs& args, const GlobalOptions& options,
                     const std::function<StatusOr<Listing>(const Api&)>& fetch) {
  if (args.watch) return WatchListing(args, options, fetch);
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto listing = fetch(**api);
  if (!listing.ok()) return Complain(listing.status());
  return ShowOnce(*listing, options);
}

}  // namespace mt::client
