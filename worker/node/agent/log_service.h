// Answers log requests: the last lines of a rank's log, then, where asked, what is appended until
// the job's ranks on this node are gone. Looks at files by timer (they are local and few), and
// waits while the coordinator is slow to take what was sent. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "worker/node/loop/event_loop.h"

namespace megatrain::v1 {
class LogRequest;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

struct LogLimits {
  std::chrono::milliseconds log_poll{200};  // how often a followed file is read
  int64_t max_queued_log_bytes = 1 << 20;   // beyond it a slow coordinator pauses the tails
};

class LogService {
 public:
  struct Deps {
    EventLoop* loop;
    LogLimits limits;
    std::string log_root;
    std::function<bool(const std::string& job_uid)> is_live;  // has ranks on this node
    std::function<void(const megatrain::v1::WorkerMessage&)> send_now;
    std::function<int64_t()> queued_bytes;
  };

  explicit LogService(Deps deps);
  ~LogService();

  void OnRequest(const megatrain::v1::LogRequest& request);
  void OnCancel(int64_t request_id);
  // Requests belong to a connection: the coordinator asks again on the next.
  void OnDisconnected();

 private:
  struct Tail;

  void Poll();
  // Sends what there is. False once the tail has ended.
  bool Advance(int64_t request_id, Tail* tail);

  Deps deps_;
  std::map<int64_t, std::unique_ptr<Tail>> tails_;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
  bool polling_ = false;
};

}  // namespace mt::node
