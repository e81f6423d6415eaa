// The program mtctl as a function, so that tests run whole command lines in their own process.
// Reads the environment, writes stdout and stderr, installs no signal handler beyond a command's
// run. One at a time.
#pragma once

namespace mt::client {

// The exit code of README.md's table.
int RunApp(int argc, const char* const* argv);

}  // namespace mt::client
