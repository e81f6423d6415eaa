// What Pulse makes visible: probes, notifications of the service manager, the agent's own metrics.
#include "worker/node/agent/pulse.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PulseTest : public AgentTest {
 protected:
  PulseTest() : health_(&clock_), manager_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = dir_ + "/notify";
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(manager_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    notifier_ = std::make_unique<base::Notifier>(base::Notifier::Environment{
        .notify_socket = path.c_str(), .watchdog_usec = "600000", .pid = ::getpid()});
    pulse_ = std::make_unique<Pulse>(Pulse::Parts{.loop = &loop_,
                                                  .agent = agent_.get(),
                                                  .metrics = metrics_.get(),
                                                  .health = &health_,
                                                  .notifier = notifier_.get()});
  }
  // The next datagram; "" if there is none.
  std::string Heard() {
    char bytes[4096];
    const ssize_t size = ::recv(manager_.get(), bytes, sizeof(bytes), 0);
    return size < 0 ? "" : std::string(bytes, static_cast<size_t>(size));
  }

  Health health_;
  base::Fd manager_;
  std::unique_ptr<base::Notifier> notifier_;
  std::unique_ptr<Pulse> pulse_;
};

TEST_F(PulseTest, TheServiceManagerHearsThatItIsReadyAndWhatItDoes) {
  pulse_->Start();
  EXPECT_EQ(Heard(), "READY=1\nSTATUS=registered; 0 of 4 slots in use");
  EXPECT_EQ(Heard(), "WATCHDOG=1");
  EXPECT_EQ(Heard(), "");
  Assign(3);
  loop_.Advance(milliseconds(300));  // half of the watchdog's time
  std::string status = Heard();
  if (status == "WATCHDOG=1") status = Heard();
  EXPECT_EQ(status, "STATUS=registered; 3 of 4 slots in use");
  coordinator_.Break("cut");
  loop_.Advance(milliseconds(300));
  status = Heard();
  if (status == "WATCHDOG=1") status = Heard();
  EXPECT_EQ(status, "STATUS=looking for the coordinator; 3 of 4 slots in use");
}

TEST_F(PulseTest, ProbesTellTheLoopFromTheCoordinator) {
  pulse_->Start();
  EXPECT_EQ(health_.Live().status, 200);
  EXPECT_EQ(health_.Ready().status, 200);
  coordinator_.Break("cut");
  loop_.Advance(milliseconds(300));
  EXPECT_EQ(health_.Live().status, 200);
  EXPECT_EQ(health_.Ready().status, 503);
  EXPECT_EQ(health_.Ready().body, "not registered with the coordinator\n");
  clock_.Advance(seconds(12));  // nothing turns
  EXPECT_EQ(health_.Live().status, 503);
  EXPECT_EQ(health_.Live().body, "the event loop has not turned for 12 s\n");
}

TEST_F(PulseTest, ShowsItself) {
  Assign(3);
  pulse_->Start();
  const std::string text = registry_->Text();
  for (const char* line : {"mt_worker_registered{node=\"node-a\"} 1\n",
                           "mt_worker_slots{device=\"cpu\",node=\"node-a\",state=\"used\"} 3\n",
                           "mt_worker_slots{device=\"cpu\",node=\"node-a\",state=\"free\"} 1\n",
                           "mt_worker_slots{device=\"gpu\",node=\"node-a\",state=\"free\"} 0\n",
                           "mt_worker_reports_queued{node=\"node-a\"} 4\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("mt_resident_memory_bytes 0\n"), std::string::npos);
}

}  // namespace
}  // namespace mt::node
