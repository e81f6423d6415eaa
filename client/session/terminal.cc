// Handlers restore the terminal with calls that are safe in them, then let the signal do what it
// would have done.
#include "client/session/terminal.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace mt::client {
namespace {

// The alternate screen, without a cursor and without wrapping; and back.
constexpr std::string_view kTake = "\033[?1049h\033[?25l\033[?7l\033[2J";
constexpr std::string_view kGiveBack = "\033[?7h\033[?25h\033[?1049l";

constexpr std::array kEnding = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGABRT,
                                SIGSEGV, SIGBUS,  SIGILL, SIGFPE};
constexpr std::array kTelling = {SIGWINCH, SIGCONT, SIGTSTP};

// What the handlers know; set before they are installed.
termios saved_settings;
volatile std::sig_atomic_t is_raw = 0;
volatile std::sig_atomic_t tell_fd = -1;

std::array<struct sigaction, kEnding.size() + kTelling.size()> old_actions;

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// A signal in the middle of these two gives everything back: is_raw is set first and cleared last.
void GiveBack() {
  if (is_raw == 0) return;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &saved_settings);
  WriteAll(kGiveBack);
  is_raw = 0;
}

void Take() {
  termios raw = saved_settings;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL | INLCR);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  is_raw = 1;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  WriteAll(kTake);
}

void OnEnding(int signal) {
  GiveBack();
  // SA_RESETHAND has restored the default, which ends the program once this returns.
  ::raise(signal);
}

void OnTelling(int signal) {
  const int error = errno;
  const char byte = signal == SIGTSTP ? 'z' : signal == SIGCONT ? 'c' : 'w';
  [[maybe_unused]] const ssize_t n = ::write(tell_fd, &byte, 1);
  errno = error;
}

void Install(int signal, void (*handler)(int), int flags, struct sigaction* old) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, old);
}

void InstallAll() {
  size_t at = 0;
  for (const int signal : kEnding) Install(signal, OnEnding, SA_RESETHAND, &old_actions[at++]);
  for (const int signal : kTelling) Install(signal, OnTelling, SA_RESTART, &old_actions[at++]);
}

void RestoreHandlers() {
  size_t at = 0;
  for (const int signal : kEnding) ::sigaction(signal, &old_actions[at++], nullptr);
  for (const int signal : kTelling) ::sigaction(signal, &old_actions[at++], nullptr);
}

}  // namespace

bool Terminal::IsCapable() {
  const char* const term = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && term != nullptr &&
         std::string_view(term) != "dumb" && *term != '\0';
}

StatusOr<std::unique_ptr<Terminal>> Terminal::Open() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return base::ErrnoError(errno, "pipe");
  base::Fd out(ends[0]);
  base::Fd in(ends[1]);
  if (::tcgetattr(STDIN_FILENO, &saved_settings) != 0)
    return base::ErrnoError(errno, "the terminal's settings");
  return std::unique_ptr<Terminal>(new Terminal(std::move(out), std::move(in)));
}

Terminal::Terminal(base::Fd pipe_out, base::Fd pipe_in)
    : pipe_out_(std::move(pipe_out)), pipe_in_(std::move(pipe_in)) {
  tell_fd = pipe_in_.get();
  InstallAll();
  Take();
}

void Terminal::Leave() { GiveBack(); }

Terminal::~Terminal() {
  Leave();
  RestoreHandlers();
}

Terminal::Size Terminal::GetSize() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

Terminal::Event Terminal::Wait(std::chrono::milliseconds limit, std::string* bytes) {
  Event event;
  std::array<pollfd, 2> fds = {{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                {.fd = pipe_out_.get(), .events = POLLIN, .revents = 0}}};
  if (::poll(fds.data(), fds.size(), static_cast<int>(limit.count())) <= 0) return event;
  std::array<char, 256> buffer{};
  if (fds[1].revents != 0) {
    const ssize_t n = ::read(pipe_out_.get(), buffer.data(), buffer.size());
    for (ssize_t i = 0; i < n; ++i) {
      if (buffer[static_cast<size_t>(i)] == 'z') event.suspended = true;
      // The shell has set its own terminal meanwhile.
      if (buffer[static_cast<size_t>(i)] == 'c') Take();
    }
  }
  if (fds[0].revents != 0) {
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n > 0) bytes->append(buffer.data(), static_cast<size_t>(n));
    event.closed = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
  }
  return event;
}

void Terminal::Wake() const { [[maybe_unused]] const ssize_t n = ::write(pipe_in_.get(), "n", 1); }

void Terminal::Draw(const std::vector<std::string>& lines) {
  std::string page;
  for (size_t i = 0; i < lines.size(); ++i)
    page += fmt::format("\033[{};1H\033[2K{}", i + 1, lines[i]);
  if (std::cmp_less(lines.size(), GetSize().rows))
    page += fmt::format("\033[{};1H\033[J", lines.size() + 1);
  WriteAll(page);
}

void Terminal::Suspend() {
  GiveBack();
  // Not SIGTSTP, which does nothing where no shell would continue the process.
  ::raise(SIGSTOP);
  Take();
}

}  // namespace mt::client
