// A rank's call to the agent of its node: one stream over the agent's Unix socket, opened again
// when it breaks, since training does not depend on the agent. What must arrive is kept until the
// coordinator has it on disk and goes out again on each new stream, oldest first (send_queue.h);
// nothing here ever makes the caller wait for the agent. Two threads: one reads and reconnects, one
// writes and beats once a second. Thread-safe.
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
    std::string token;
    size_t queue_limit = SendQueue::kLimit;
    // Fills in what a beat tells of the rank's work beside step and progress; on the writing
    // thread. May be empty.
    std::function<void(megatrain::v1::RankBeat*)> fill_beat;
  };
  // Everything but assignments and acknowledgements; called on the reading thread, returns soon.
  using Handler = std::function<void(const megatrain::v1::AgentMessage&)>;

  AgentChannel(Config config, Handler handler);
  ~AgentChannel();  // Close(0)
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  // Until the agent has said what to run. Unavailable where it does not answer, FailedPrecondition
  // where it refuses this rank.
  Status WaitAssigned(std::chrono::milliseconds limit, megatrain::v1::RankAssignment* out);
  // Returns at once.
  void Send(megatrain::v1::RankMessage message);
  // What beats carry: the last step done; each call counts as progress.
  void NoteProgress(int64_t step);
  // Gives what was sent `limit` to arrive and to be acknowledged, then ends the stream. Once.
  void Close(std::chrono::milliseconds limit);
  // After Close: what nobody has acknowledged (SendQueue::Serialize); empty where all has arrived.
  std::string Unacknowledged() const;

 private:
  struct State;
  megatrain::v1::RankMessage Hello() const;
  megatrain::v1::RankMessage Beat() const;
  // On the reading thread.
  void OnMessage(const megatrain::v1::AgentMessage& message);
  void ReadLoop();
  void WriteLoop();
  // One stream, from hello to its end. False where the agent wants no other.
  bool ReadOneStream();

  const Config config_;
  const Handler handler_;
  std::atomic<int64_t> progress_ = 0;
  std::atomic<int64_t> step_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace mt::rank
