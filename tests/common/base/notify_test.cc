// The protocol of sd_notify(3) against sockets like those of a service manager.
#include "common/base/notify.h"

#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"

namespace mt::base {
namespace {

class Manager {
 public:
  // `name` has the form of $NOTIFY_SOCKET.
  explicit Manager(std::string name)
      : name_(std::move(name)), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name_.data(), name_.size());
    if (name_[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  }
  ~Manager() {
    if (name_[0] == '/') unlink(name_.c_str());
  }
  // The next message, or "" where none arrives.
  std::string Next() {
    char buffer[1024];
    const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
    return got < 0 ? "" : std::string(buffer, static_cast<size_t>(got));
  }
  const char* name() const { return name_.c_str(); }

 private:
  std::string name_;
  Fd fd_;
};

TEST(NotifierTest, SpeaksTheProtocol) {
  for (const char* prefix : {"/tmp/mt-notify-", "@mt-notify-"}) {
    Manager manager(prefix + RandomHex(8));
    Notifier notifier({.notify_socket = manager.name()});
    EXPECT_TRUE(notifier.enabled());
    notifier.Ready("serving on\nx");
    EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=serving on x");
    notifier.Status("3 jobs");
    EXPECT_EQ(manager.Next(), "STATUS=3 jobs");
    notifier.ExtendTimeout(std::chrono::seconds(2));
    EXPECT_EQ(manager.Next(), "EXTEND_TIMEOUT_USEC=2000000");
    notifier.Stopping("bye");
    EXPECT_EQ(manager.Next(), "STOPPING=1\nSTATUS=bye");
    notifier.Ping();
    EXPECT_EQ(manager.Next(), "") << "no watchdog was asked for";
  }
}

TEST(NotifierTest, PingsAFractionOfTheInterval) {
  Manager manager("@mt-notify-" + RandomHex(8));
  Notifier hourly({.notify_socket = manager.name(), .watchdog_usec = "3600000000"});
  EXPECT_EQ(hourly.watchdog(), std::chrono::hours(1));
  for (int i = 0; i < 1'000; ++i) hourly.Ping();
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  EXPECT_EQ(manager.Next(), "") << "not due again";
  Notifier quick({.notify_socket = manager.name(), .watchdog_usec = "4"});
  for (int i = 0; i < 3; ++i) {
    while (manager.Next().empty()) quick.Ping();
  }
}

TEST(NotifierTest, TheWatchdogOfAnotherProcessIsNotOurs) {
  Manager manager("@mt-notify-" + RandomHex(8));
  const Notifier::Environment environment{
      .notify_socket = manager.name(), .watchdog_usec = "100", .watchdog_pid = "17", .pid = 17};
  EXPECT_EQ(Notifier(environment).watchdog().count(), 100);
  Notifier::Environment other = environment;
  other.pid = 18;
  EXPECT_EQ(Notifier(other).watchdog().count(), 0);
  other = environment;
  other.watchdog_usec = "12x";
  EXPECT_EQ(Notifier(other).watchdog().count(), 0);
}

TEST(NotifierTest, WithoutAManagerItIsSilent) {
  Notifier none;
  none.Ready("x");
  EXPECT_FALSE(none.enabled());
  for (const char* bad : {"", "relative", "vsock:2:1", "@", "/"}) {
    Notifier notifier({.notify_socket = bad});
    EXPECT_FALSE(notifier.enabled()) << bad;
    notifier.Ready("x");
  }
  Notifier nobody({.notify_socket = "/tmp/mt-notify-nobody", .watchdog_usec = "1"});
  nobody.Ready("x");
  nobody.Ping();
}

}  // namespace
}  // namespace mt::base
