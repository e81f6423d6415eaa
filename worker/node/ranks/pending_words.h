// The words for world rank 0 that it has not yet answered: each is given once per attachment and
// forgotten when the rank says that it has acted, but for its id, since the coordinator repeats
// commands whose outcome it has not heard. Part of what an agent leaves to the next. Loop thread
// only.
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

class PendingWords {
 public:
  PendingWords();
  // As an earlier agent has left them.
  explicit PendingWords(const megatrain::v1::AllocationRecord& record);
  ~PendingWords();

  // The message for the rank, or nullptr where this command is pending or done already.
  std::unique_ptr<megatrain::v1::AgentMessage> Add(const megatrain::v1::Command& command);
  // False where no such word is pending.
  bool Done(const std::string& command_id);
  // Oldest first.
  std::vector<megatrain::v1::AgentMessage> Messages() const;
  void FillRecord(megatrain::v1::AllocationRecord* record) const;

 private:
  static constexpr size_t kDoneKept = 64;

  std::vector<std::unique_ptr<megatrain::v1::Command>> words_;
  std::deque<std::string> done_;
};

}  // namespace mt::node
