// Timers are kept in a map by id, so that Cancel also stops one whose handler is queued already.
#include "worker/node/loop/asio_event_loop.h"

#include <list>
#include <unordered_map>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

namespace mt::node {

namespace asio = boost::asio;

struct AsioEventLoop::State {
  struct Signal {
    Signal(asio::io_context& io, int number) : set(io, number) {}
    asio::signal_set set;
    std::function<void()> task;
  };

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  TimerId next_timer = 1;
  std::unordered_map<TimerId, std::unique_ptr<asio::steady_timer>> timers;
  std::list<Signal> signals;

  void Wait(Signal& signal) {
    signal.set.async_wait([this, &signal](const boost::system::error_code& error, int) {
      if (error) return;
      signal.task();
      Wait(signal);
    });
  }
};

AsioEventLoop::AsioEventLoop() : state_(std::make_unique<State>()) {}
AsioEventLoop::~AsioEventLoop() = default;

void AsioEventLoop::Post(Task task) { asio::post(state_->io, std::move(task)); }

EventLoop::TimerId AsioEventLoop::After(std::chrono::milliseconds delay, Task task) {
  const TimerId id = state_->next_timer++;
  auto timer = std::make_unique<asio::steady_timer>(state_->io, delay);
  timer->async_wait([this, id, task = std::move(task)](const boost::system::error_code& error) {
    // A timer that was cancelled after it had expired is not in the map any more.
    if (error || state_->timers.erase(id) == 0) return;
    task();
  });
  state_->timers.emplace(id, std::move(timer));
  return id;
}

void AsioEventLoop::Cancel(TimerId timer) { state_->timers.erase(timer); }

void AsioEventLoop::OnSignal(int signal_number, std::function<void()> task) {
  State::Signal& signal = state_->signals.emplace_back(state_->io, signal_number);
  signal.task = std::move(task);
  state_->Wait(signal);
}

void AsioEventLoop::OnReadable(base::Fd fd, std::function<void()> task) {
  using Descriptor = asio::posix::stream_descriptor;
  auto descriptor = std::make_unique<Descriptor>(state_->io, fd.Release());
  Descriptor& waiting = *descriptor;
  waiting.async_wait(Descriptor::wait_read,
                     [task = std::move(task),
                      descriptor = std::move(descriptor)](const boost::system::error_code& error) {
                       if (!error) task();
                     });
}

void AsioEventLoop::Run() { state_->io.run(); }
void AsioEventLoop::Stop() { state_->io.stop(); }

}  // namespace mt::node
