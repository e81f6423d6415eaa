// mtctl on a terminal of the test's own, of any width: what it draws, and keys that are pressed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/client/fake_coordinator.h"

namespace mt::client {

// Everything that was written to the terminal, as it came, and the exit code.
struct Drawn {
  int code = 0;
  std::string text;
};

// Runs one command line with standard output and error on a terminal of `columns`. `meanwhile` runs
// on a thread of its own.
Drawn MtctlOnTerminal(const FakeCoordinator* server, std::vector<std::string> args, int columns,
                      const std::function<void()>& meanwhile = {});

// The same, until `shown` has been drawn (for a minute at most); then Ctrl-C is pressed.
Drawn MtctlOnTerminalUntil(const std::string& shown, const FakeCoordinator* server,
                           std::vector<std::string> args, int columns);

// The lines as a terminal shows them, one for each time the live line was drawn.
std::vector<std::string> LinesOf(const std::string& drawn);

}  // namespace mt::client
