// A list that a `get` command shows, once or (with -w) again and again: on a terminal in place,
// elsewhere only what changed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "client/session.h"

namespace mt::client {

struct Listing {
  std::shared_ptr<const google::protobuf::Message> message;
  std::string_view items;                      // its repeated field
  std::vector<std::string> names;              // one per item
  std::function<Rows(const TableArgs&)> rows;  // of `message`, which it may refer to
  std::string empty;                           // said on stderr where there is no item
};

struct WatchArgs {
  bool watch = false;
  double interval_s = 1;
};

void AddWatchFlags(CLI::App* command, WatchArgs* args);

// Watching ends with 5 on Ctrl-C; a coordinator that is away is said once and waited for.
ExitCode ShowListing(const WatchArgs& args, const GlobalOptions& options,
                     const std::function<StatusOr<Listing>(const Api&)>& fetch);

}  // namespace mt::client
