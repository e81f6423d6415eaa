// A pseudo-terminal takes the place of the process's standard output and error for the run.
#include "tests/client/terminal_screen.h"

#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "client/app.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace mt::client {

namespace {

// What the terminal shows so far, for another thread.
class Screen {
 public:
  void Append(std::string_view text) {
    const base::MutexLock lock(&mu_);
    text_ += text;
    changed_.NotifyAll();
  }
  void Await(const std::string& shown) {
    const auto limit = base::Clock::Real()->Now() + std::chrono::minutes(1);
    base::MutexLock lock(&mu_);
    while (text_.find(shown) == std::string::npos) {
      if (!changed_.WaitUntil(&mu_, limit) && base::Clock::Real()->Now() >= limit) return;
    }
  }
  std::string Take() {
    const base::MutexLock lock(&mu_);
    return std::move(text_);
  }

 private:
  base::Mutex mu_;
  base::CondVar changed_;
  std::string text_ GUARDED_BY(mu_);
};

Drawn Run(const FakeCoordinator* server, std::vector<std::string> args, int columns,
          const std::function<void(Screen&)>& meanwhile) {
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
  Screen shown;
  std::thread reader([&] {
    char buffer[4096];
    // Ends with an error once nobody has the terminal open.
    for (ssize_t n = 0; (n = ::read(screen, buffer, sizeof(buffer))) > 0;)
      shown.Append({buffer, static_cast<size_t>(n)});
  });
  std::thread world([&] { meanwhile(shown); });
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
  drawn.text = shown.Take();
  return drawn;
}

}  // namespace

Drawn MtctlOnTerminal(const FakeCoordinator* server, std::vector<std::string> args, int columns,
                      const std::function<void()>& meanwhile) {
  return Run(server, std::move(args), columns, [&meanwhile](Screen&) {
    if (meanwhile) meanwhile();
  });
}

Drawn MtctlOnTerminalUntil(const std::string& shown, const FakeCoordinator* server,
                           std::vector<std::string> args, int columns) {
  return Run(server, std::move(args), columns, [&shown](Screen& screen) {
    screen.Await(shown);
    PressCtrlC(0);
  });
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
