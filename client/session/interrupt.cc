// The handler only sets a flag; a thread of the scope polls it, as stopping a stream takes a lock.
#include "client/session/interrupt.h"

#include <chrono>

#include "client/session/api.h"

namespace mt::client {
namespace {

constexpr std::chrono::milliseconds kInterruptTick{50};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

}  // namespace

InterruptScope::InterruptScope(StreamStopper* stopper) : stopper_(stopper) {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  ::sigaction(SIGINT, &action, &old_);
  if (stopper_ != nullptr) thread_ = std::thread([this] { Watch(); });
}

InterruptScope::~InterruptScope() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
  ::sigaction(SIGINT, &old_, nullptr);
}

bool InterruptScope::Interrupted() { return interrupted != 0; }

// A signal handler may not take the stopper's lock, so this thread polls the flag.
void InterruptScope::Watch() {
  while (!ended_) {
    if (Interrupted()) {
      stopper_->Stop();
      return;
    }
    std::this_thread::sleep_for(kInterruptTick);
  }
}

}  // namespace mt::client
