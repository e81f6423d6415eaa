// Answers requests for rank logs, for the traces beside them, which it sends whole, and for what a
// job of kind generate or eval has written there, from any byte on: sends the last lines of a log
// and, if asked to follow, what is appended until the job's ranks on this node are gone. Polls the
// files by timer, because they are local and few, and pauses while the coordinator is slow to take
// what was sent. Loop thread only; blocks on the local disk only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/process/log_file.h"

namespace megatrain::v1 {
class LogRequest;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

struct LogLimits {
  std::chrono::milliseconds log_poll{200};  // between two reads of a followed file
  int64_t max_queued_log_bytes = 1 << 20;   // unsent bytes beyond which reading pauses
};

class LogService {
 public:
  struct Deps {
    EventLoop* loop;
    LogLimits limits;
    std::string log_root;
    std::function<bool(const std::string& job_uid)> is_live;  // true if it has ranks on this node
    std::function<void(const megatrain::v1::WorkerMessage&)> send_now;
    std::function<int64_t()> queued_bytes;
  };

  explicit LogService(Deps deps);
  ~LogService();

  void OnRequest(const megatrain::v1::LogRequest& request);
  void OnCancel(int64_t request_id);
  // Forgets all requests: they belong to a connection, and the coordinator repeats them on the
  // next.
  void OnDisconnected();

 private:
  struct Tail;

  StatusOr<std::string> PathOf(const megatrain::v1::LogRequest& request) const;
  static StatusOr<LogReader> Open(const Tail& tail);
  void Poll();
  // Sends what can be read now. False once everything was sent.
  bool Advance(int64_t request_id, Tail* tail);

  Deps deps_;
  std::map<int64_t, std::unique_ptr<Tail>> tails_;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
  bool polling_ = false;
};

}  // namespace mt::node
