// sd_notify(3) by hand: a datagram socket per message, opened and sent without blocking.
#include "common/base/notify.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/files.h"
#include "common/base/log.h"

namespace mt::base {
namespace {

// sd_watchdog_enabled(3) advises half of the interval; twice as often survives one slow turn of a
// loop.
constexpr int kPingsPerInterval = 4;

std::optional<int64_t> Number(const char* text) {
  if (text == nullptr) return std::nullopt;
  const char* end = text + std::strlen(text);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || stop == text) return std::nullopt;
  return value;
}

// Newlines separate assignments in the protocol, so a value has to be one line.
std::string OneLine(std::string_view text) {
  std::string out(text);
  std::ranges::replace(out, '\n', ' ');
  return out;
}

}  // namespace

Notifier::Notifier(const Environment& environment) {
  const std::string_view name =
      environment.notify_socket == nullptr ? "" : environment.notify_socket;
  if (name.empty()) return;
  const bool usable = (name.starts_with('/') || name.starts_with('@')) && name.size() > 1 &&
                      name.size() < sizeof(sockaddr_un::sun_path);
  if (!usable) {
    log::Warn("NOTIFY_SOCKET is no socket of this host", {{"value", name}});
    return;
  }
  socket_ = name;
  if (socket_[0] == '@') socket_[0] = '\0';
  const auto pid = Number(environment.watchdog_pid);
  if (environment.watchdog_pid != nullptr && pid != environment.pid) return;
  watchdog_ = std::chrono::microseconds(
      std::max<int64_t>(Number(environment.watchdog_usec).value_or(0), 0));
}

void Notifier::Ready(std::string_view status) {
  Send(fmt::format("READY=1\nSTATUS={}", OneLine(status)));
}

void Notifier::Status(std::string_view status) { Send(fmt::format("STATUS={}", OneLine(status))); }

void Notifier::Stopping(std::string_view status) {
  Send(fmt::format("STOPPING=1\nSTATUS={}", OneLine(status)));
}

void Notifier::ExtendTimeout(std::chrono::microseconds time) {
  Send(fmt::format("EXTEND_TIMEOUT_USEC={}", time.count()));
}

void Notifier::Ping() {
  if (watchdog_.count() == 0) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  auto due = next_ping_.load(std::memory_order_relaxed);
  if (now.count() < due) return;
  const auto next =
      std::chrono::steady_clock::duration(now + watchdog_ / kPingsPerInterval).count();
  // When two threads get here at once, one of them sends.
  if (next_ping_.compare_exchange_strong(due, next, std::memory_order_relaxed)) Send("WATCHDOG=1");
}

void Notifier::Send(const std::string& message) {
  if (!enabled()) return;
  const Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const ssize_t sent = fd ? sendto(fd.get(), message.data(), message.size(), MSG_NOSIGNAL,
                                   reinterpret_cast<const sockaddr*>(&address), length)
                          : -1;
  if (sent >= 0 || warned_.exchange(true)) return;
  log::Warn("cannot notify the service manager", {{"error", std::strerror(errno)}});
}

}  // namespace mt::base
