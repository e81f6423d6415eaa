// Command line of mt-shim: --dir DIR --log FILE --stop-fd N --job UID --epoch E --rank R --slot S
// [--grace-ms MS] -- PROGRAM ARGS... All strings point into argv.
#pragma once

namespace mt::shim {

struct Options {
  const char* dir = nullptr;  // where rank.json and exit.json are written; exists
  const char* log = nullptr;  // the rank's stdout and stderr are appended here
  const char* job_uid = nullptr;
  long epoch = -1;
  int rank = -1;
  int slot = -1;
  int stop_fd = -1;          // read end of a pipe that the agent holds: end-of-file = agent gone
  int grace_ms = 5000;       // from SIGTERM to SIGKILL (P5)
  char** program = nullptr;  // null-terminated
};

// False, with one line on stderr, where an argument is missing, unknown or out of range.
bool ParseOptions(int argc, char** argv, Options* options);

}  // namespace mt::shim
