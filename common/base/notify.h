// What a daemon tells the service manager that started it (sd_notify(3)'s protocol, without
// libsystemd): one datagram of KEY=VALUE lines each to the socket of $NOTIFY_SOCKET. Nothing
// blocks; without a socket nothing is sent. A send that fails is logged once. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

namespace mt::base {

class Notifier {
 public:
  // The values of the environment as the mains read them; nullptr: unset. A leading '@' of the
  // socket names an abstract one. The watchdog counts only where $WATCHDOG_PID is unset or `pid`.
  struct Environment {
    const char* notify_socket = nullptr;  // $NOTIFY_SOCKET
    const char* watchdog_usec = nullptr;  // $WATCHDOG_USEC
    const char* watchdog_pid = nullptr;   // $WATCHDOG_PID
    int pid = 0;                          // of this process
  };
  Notifier() = default;  // silent
  explicit Notifier(const Environment& environment);
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  bool enabled() const { return !socket_.empty(); }
  // Within this time a Ping is expected; 0: none is.
  std::chrono::microseconds watchdog() const { return watchdog_; }

  // `status` is one line for people: "serving on 127.0.0.1:7070".
  void Ready(std::string_view status);
  void Status(std::string_view status);
  void Stopping(std::string_view status);
  // The manager waits this much longer, from now, for the start or the stop to be over.
  void ExtendTimeout(std::chrono::microseconds time);
  // The loop that works is alive. Call it at every turn: sent at most four times in watchdog().
  void Ping();

 private:
  void Send(const std::string& message);

  std::string socket_;  // as sun_path wants it: an abstract one begins with '\0'
  std::chrono::microseconds watchdog_{0};
  std::atomic<std::chrono::steady_clock::rep> next_ping_{0};
  std::atomic<bool> warned_{false};
};

}  // namespace mt::base
