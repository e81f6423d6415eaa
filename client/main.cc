// mtctl: the user's side of Megatrain. Data goes to stdout, messages to stderr; exit codes are in
// README.md.
#include "client/app.h"
#include "common/base/log.h"

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) {
  mt::log::Init({.binary = "mtctl", .level = mt::log::Level::kWarn, .file = {}});
  return mt::client::RunApp(argc, argv);
}
