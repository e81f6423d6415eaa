// mtctl as a function, so that tests run whole command lines in their own process. It reads the
// environment and writes to stdout and stderr; signal handlers are installed only while a command
// runs. Not reentrant.
#pragma once

namespace mt::client {

// Parses and runs one command line; returns an exit code of the table in README.md.
int RunApp(int argc, const char* const* argv);

}  // namespace mt::client
