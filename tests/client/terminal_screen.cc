// A pseudo-terminal takes the place of the process's standard output and error for the run.
#include "tests/client/terminal_screen.h"

#include <cstdio>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

#include "client/app.h"
#include "common/base/check.h"

namespace mt::client {

Drawn MtctlOnTerminal(const FakeCoordinator* server, std::vector<std::string> args, int columns,
                      const std::function<void()>& meanwhile) {
  const int screen = ::posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(screen >= 0 && ::grantpt(screen) == 0 && ::unlockpt(screen) == 0) << "no terminal";
  const int terminal = ::open(::ptsname(screen), O_RDWR | O_NOCTTY);
  CHECK_GE(terminal, 0) << "no terminal";
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  CHECK_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0) << "no size";
  std::fflush(nullptr);
  const int out = ::dup(STDOUT_FILENO);
  const int err = ::dup(STDERR_FILENO);
  ::dup2(terminal, STDOUT_FILENO);
  ::dup2(terminal, STDERR_FILENO);
  Drawn drawn;
  std::thread reader([&] {
    char buffer[4096];
    // Ends with an error once nobody has the terminal open.
    for (ssize_t n = 0; (n = ::read(screen, buffer, sizeof(buffer))) > 0;)
      drawn.text.append(buffer, static_cast<size_t>(n));
  });
  std::thread world(meanwhile ? meanwhile : [] {});
  args.insert(args.begin(), "mtctl");
  if (server != nullptr) args.insert(args.end(), {"--coordinator", server->address()});
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  drawn.code = RunApp(static_cast<int>(argv.size()), argv.data());
  std::fflush(nullptr);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  for (const int fd : {out, err, terminal}) ::close(fd);
  world.join();
  reader.join();
  ::close(screen);
  return drawn;
}

std::vector<std::string> LinesOf(const std::string& drawn) {
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i] == '\r' || drawn[i] == '\n') {
      if (!lines.back().empty()) lines.emplace_back();
    } else if (drawn[i] == '\033') {
      i = std::min(drawn.find_first_of("mKHJ", i), drawn.size());
    } else {
      lines.back() += drawn[i];
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace mt::client
