// The event file of one job and epoch: turns what rank 0 reports into records. It begins a file
// when it knows which step comes first (README.md). Loop thread only; no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/spec/batch_ramp.h"
#include "worker/node/tensorboard/event_files.h"

namespace megatrain::v1 {
class JobSpec;
class RankMessage;
}  // namespace megatrain::v1

namespace mt::node {

class EventLog {
 public:
  // `files` is not owned. The log does nothing where it is nullptr, or the job asks for no files.
  EventLog(EventFiles* files, const megatrain::v1::JobSpec& job, EventFilePlace place);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // A message of rank 0 that was not handed over before. `now_us`: Unix, of a file that begins
  // where the message has no time.
  void OnMessage(const megatrain::v1::RankMessage& message, int64_t now_us);
  // All ranks are gone.
  void Close();

 private:
  void BeginAt(int64_t first_step, int64_t time_us);

  EventFiles* files_;
  const EventFilePlace place_;
  const std::optional<spec::BatchRamp> ramp_;  // nullopt: the job does not tell
  bool begun_ = false;
};

}  // namespace mt::node
