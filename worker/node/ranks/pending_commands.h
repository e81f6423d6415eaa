// The commands for world rank 0 that it has not answered yet. Each is sent once per call of the
// rank and forgotten when the rank reports its outcome; of finished ones the newest ids are kept,
// because the coordinator repeats commands whose outcome it has not heard. Part of the record that
// an agent leaves to the next one. Loop thread only; no I/O.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace megatrain::v1 {
class AgentMessage;
class AllocationRecord;
class Command;
}  // namespace megatrain::v1

namespace mt::node {

class PendingCommands {
 public:
  PendingCommands();
  // Restores what an earlier agent has recorded.
  explicit PendingCommands(const megatrain::v1::AllocationRecord& record);
  ~PendingCommands();

  // Keeps the command and returns the message for the rank, or nullptr if a command of this id is
  // pending or finished already.
  std::unique_ptr<megatrain::v1::AgentMessage> Add(const megatrain::v1::Command& command);
  // Forgets a command that is finished. False if none of this id is pending.
  bool Done(const std::string& command_id);
  // One message per pending command, oldest first.
  std::vector<megatrain::v1::AgentMessage> Messages() const;
  // Replaces the record's commands and finished ids.
  void FillRecord(megatrain::v1::AllocationRecord* record) const;

 private:
  static constexpr size_t kDoneKept = 64;

  std::vector<std::unique_ptr<megatrain::v1::Command>> commands_;
  std::deque<std::string> done_;  // ids, oldest first
};

}  // namespace mt::node
