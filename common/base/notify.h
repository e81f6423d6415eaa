// Reports a daemon's state to the service manager that started it, by the protocol of sd_notify(3)
// without libsystemd: each datagram to the socket $NOTIFY_SOCKET holds lines KEY=VALUE. Nothing
// blocks, and without a socket nothing is sent. The first send that fails is logged. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

namespace mt::base {

class Notifier {
 public:
  // The environment as main reads it; nullptr means unset. A leading '@' in the socket's name
  // denotes an abstract socket. The watchdog is on only where $WATCHDOG_PID is unset or equals
  // `pid`.
  struct Environment {
    const char* notify_socket = nullptr;  // $NOTIFY_SOCKET
    const char* watchdog_usec = nullptr;  // $WATCHDOG_USEC
    const char* watchdog_pid = nullptr;   // $WATCHDOG_PID
    int pid = 0;                          // this process's id
  };
  Notifier() = default;  // sends nothing
  explicit Notifier(const Environment& environment);
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  bool enabled() const { return !socket_.empty(); }
  // The service manager expects a Ping within each such interval; 0: it expects none.
  std::chrono::microseconds watchdog() const { return watchdog_; }

  // READY=1, when the daemon has started. `status` is one line for people: "serving on
  // 127.0.0.1:7070".
  void Ready(std::string_view status);
  // Replaces the status line that `systemctl status` shows.
  void Status(std::string_view status);
  // STOPPING=1, when shutdown begins.
  void Stopping(std::string_view status);
  // Asks the manager to wait for this long, counted from now, before it calls the start or the stop
  // failed.
  void ExtendTimeout(std::chrono::microseconds time);
  // Reports that the main loop is alive. Call it at every turn of the loop: at most four messages
  // per watchdog() are sent.
  void Ping();

 private:
  void Send(const std::string& message);

  std::string socket_;  // in the form of sun_path: an abstract name begins with '\0'
  std::chrono::microseconds watchdog_{0};
  std::atomic<std::chrono::steady_clock::rep> next_ping_{0};
  std::atomic<bool> warned_{false};
};

}  // namespace mt::base
