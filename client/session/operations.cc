// Long polling: Wait calls of limited length in a loop, so that progress, limits and a lost
// coordinator are noticed between them.
#include "client/session/operations.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <unistd.h>

#include "client/output/format.h"
#include "client/session/interrupt.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Limit of one Wait call: short enough to show progress and to notice a limit.
constexpr milliseconds kOneWait{2'000};
constexpr milliseconds kAgain{200};
// How long the coordinator may be unreachable; the operation itself is durable.
constexpr std::chrono::minutes kOperationPatience{5};

void SayHowToLook(const v1::Operation& operation, const char* why) {
  std::fprintf(stderr, "mtctl: %s; the operation goes on. Look at it: mtctl get operations %s\n",
               why, base::CleanLine(operation.name()).c_str());
}

// Prints the operation's progress text when it has changed: on a terminal, and elsewhere where it
// waits for a node that is not heard, which may be for ever.
void ShowOperation(const v1::Operation& operation, std::string* shown) {
  if (operation.done() || operation.progress().empty() || operation.progress() == *shown) return;
  *shown = operation.progress();
  if (::isatty(STDERR_FILENO) == 1 || operation.lost_nodes_size() > 0) {
    std::fprintf(stderr, "%s: %s\n", base::CleanLine(operation.verb()).c_str(),
                 base::CleanLine(*shown).c_str());
  }
}

milliseconds Left(std::optional<milliseconds> limit, steady_clock::time_point start) {
  if (!limit) return kOneWait;
  return std::min(kOneWait,
                  *limit - std::chrono::duration_cast<milliseconds>(steady_clock::now() - start));
}

}  // namespace

bool IsOperationName(const std::string& text) { return text.starts_with("operations/"); }

ExitCode WaitDone(const Api& api, std::optional<milliseconds> limit, v1::Operation* operation) {
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  const auto start = steady_clock::now();
  auto heard = start;
  std::string shown;
  while (!operation->done()) {
    ShowOperation(*operation, &shown);
    const milliseconds left = Left(limit, start);
    if (limit.has_value() && left.count() <= 0) {
      const std::string text = FormatDuration(static_cast<double>(limit->count()) / 1e3);
      SayHowToLook(*operation, fmt::format("not done within {}", text).c_str());
      return kExitTimedOut;
    }
    v1::WaitOperationRequest request;
    request.set_name(operation->name());
    request.set_timeout_ms(left.count());
    auto now = api.WaitOperation(request, &stopper);
    if (InterruptScope::Interrupted()) {
      SayHowToLook(*operation, "stopped waiting");
      return kExitInterrupted;
    }
    if (now.ok()) {
      *operation = std::move(now).value();
      heard = steady_clock::now();
      continue;
    }
    const bool away = ExitCodeOf(now.status()) == kExitConnection;
    if (!away || steady_clock::now() - heard > kOperationPatience) return Complain(now.status());
    std::this_thread::sleep_for(kAgain);
  }
  return kExitOk;
}

}  // namespace mt::client
