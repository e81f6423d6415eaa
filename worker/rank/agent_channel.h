// A rank's connection to the agent of its node: one bidirectional gRPC stream over the agent's Unix
// socket, reopened whenever it breaks, because training does not depend on the agent. Messages that
// must arrive are kept until the coordinator has them on disk and are sent again on each new
// stream, oldest first (send_queue.h). No call makes the training thread wait for the agent. Two
// threads: one reads and reconnects, one writes and sends a beat once a second. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/rank/send_queue.h"

namespace megatrain::v1 {
class AgentMessage;
class RankAssignment;
class RankBeat;
class RankMessage;
}  // namespace megatrain::v1

namespace mt::rank {

class AgentChannel {
 public:
  struct Config {
    std::string socket;  // "unix:/run/..."
    std::string job_uid;
    int64_t epoch = 0;
    int rank = 0;
    std::string token;                       // proves to the agent that it started this rank
    size_t queue_limit = SendQueue::kLimit;  // messages
    // Fills in the fields of a beat other than step and progress; called on the writing thread. May
    // be empty.
    std::function<void(megatrain::v1::RankBeat*)> fill_beat;
    // Called on the reading thread when a stream has begun, the first one too. May be empty.
    std::function<void()> on_attached;
  };
  // Receives every message but assignments and acknowledgements; called on the reading thread and
  // must return soon.
  using Handler = std::function<void(const megatrain::v1::AgentMessage&)>;

  // Starts both threads and connects. CHECKs that the socket's address is valid.
  AgentChannel(Config config, Handler handler);
  ~AgentChannel();  // Close(0)
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  // Blocks until the agent has sent the assignment. kUnavailable if it does not answer within
  // `limit`, kFailedPrecondition if it refuses this rank.
  Status WaitAssigned(std::chrono::milliseconds limit, megatrain::v1::RankAssignment* out);
  // Queues a message and returns at once.
  void Send(megatrain::v1::RankMessage message);
  // Sets the step that beats report, the last one done; every call counts as progress.
  void NoteProgress(int64_t step);
  // Waits at most `limit` until everything queued has been sent and acknowledged, then ends the
  // stream and joins the threads. Later calls do nothing.
  void Close(std::chrono::milliseconds limit);
  // After Close: the messages that were not acknowledged (SendQueue::Serialize); empty if all were.
  std::string Unacknowledged() const;

 private:
  struct State;
  megatrain::v1::RankMessage Hello() const;
  megatrain::v1::RankMessage Beat() const;
  // Handles one message, on the reading thread.
  void OnMessage(const megatrain::v1::AgentMessage& message);
  void ReadLoop();
  void WriteLoop();
  // Runs one stream from hello to its end. False if no other should be opened.
  bool ReadOneStream();

  const Config config_;
  const Handler handler_;
  std::atomic<int64_t> progress_ = 0;
  std::atomic<int64_t> step_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace mt::rank
