// The list that a `get` command prints: once, or with -w repeatedly: on a terminal in place,
// elsewhere only items that changed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "client/session/session.h"

namespace mt::client {

// A fetched list with its forms of output.
struct Listing {
  std::shared_ptr<const google::protobuf::Message> message;
  std::string_view items;                      // name of the repeated field
  std::vector<std::string> names;              // what other verbs take, one per item
  std::function<Rows(const TableArgs&)> rows;  // rows of `message`, which it may refer to
  std::string empty;                           // printed on stderr where the list is empty
  std::string notes{};                         // lines below the table, but not the wide one
};

struct WatchArgs {
  bool watch = false;
  double interval_s = 1;
};

// Adds -w and --interval to `command`.
void AddWatchFlags(CLI::App* command, WatchArgs* args);

// Fetches and prints. Watching ends with kExitInterrupted on Ctrl-C; when the coordinator is
// unreachable this is reported once, and watching continues when it is back.
ExitCode ShowListing(const WatchArgs& args, const GlobalOptions& options,
                     const std::function<StatusOr<Listing>(const Api&)>& fetch);

// Adds `get presets`, a list of its own that needs no coordinator.
void AddGetPresets(CLI::App* get, const CommandContext& context);

}  // namespace mt::client
