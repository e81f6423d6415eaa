// A thread in sigtimedwait(2), whose timeout lets it notice its stop token.
#include "worker/rank/stop_signals.h"

#include <csignal>
#include <ctime>
#include <pthread.h>
#include <utility>

namespace mt::rank {
namespace {

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSet();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StopSignals::StopSignals(std::function<void(int count)> on_signal)
    : thread_([on_signal = std::move(on_signal)](const std::stop_token& stop) {
        ::pthread_setname_np(::pthread_self(), "mt-signals");
        const sigset_t set = StopSet();
        const timespec slice{0, 100'000'000};
        for (int count = 0; !stop.stop_requested();) {
          if (::sigtimedwait(&set, nullptr, &slice) > 0) on_signal(++count);
        }
      }) {}

StopSignals::~StopSignals() = default;

}  // namespace mt::rank
