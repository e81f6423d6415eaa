// Every step of a range of a job's history, page by page: what is held at once does not grow with
// the number of steps.
#pragma once

#include <functional>

#include "client/commands/history.h"

namespace mt::client {

// What a walk hands out.
struct WalkTold {
  // The next steps, in order and one by one. Anything but kExitOk ends the walk with that code.
  std::function<ExitCode(const v1::History& page)> page;
  // A rollback during the walk replaced these steps, which were handed out: they follow again.
  std::function<void(int64_t first, int64_t last)> replaced;
};

// Walks through the steps that `args` select (its points have no meaning) to the newest one, of the
// job args.uid: a later job of the same name is another one.
// Blocks. Says failures on stderr and returns their exit code.
ExitCode WalkHistory(const Api& api, const HistoryArgs& args, const GlobalOptions& options,
                     const WalkTold& told);

}  // namespace mt::client
