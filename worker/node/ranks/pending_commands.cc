// RankWord and `words` are the names of a command on the wire and on disk.
#include "worker/node/ranks/pending_commands.h"

#include <algorithm>

#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::AgentMessage;
using megatrain::v1::AllocationRecord;
using megatrain::v1::Command;

namespace {

AgentMessage ToMessage(const Command& command) {
  AgentMessage message;
  auto& word = *message.mutable_word();
  word.set_command_id(command.command_id());
  word.set_verb(command.verb());
  word.set_profile_steps(command.profile_steps());
  word.set_reason(command.reason());
  if (command.has_spec()) *word.mutable_spec() = command.spec();
  if (command.has_label()) *word.mutable_label() = command.label();
  *word.mutable_kept_steps() = command.kept_steps();
  if (command.has_generate()) *word.mutable_generate() = command.generate();
  return message;
}

}  // namespace

PendingCommands::PendingCommands() = default;
PendingCommands::PendingCommands(const AllocationRecord& record)
    : done_(record.done_command_ids().begin(), record.done_command_ids().end()) {
  for (const Command& pending : record.words())
    commands_.push_back(std::make_unique<Command>(pending));
}
PendingCommands::~PendingCommands() = default;

std::unique_ptr<AgentMessage> PendingCommands::Add(const Command& command) {
  const bool known = std::any_of(
      commands_.begin(), commands_.end(),
      [&command](const auto& pending) { return pending->command_id() == command.command_id(); });
  if (known || std::find(done_.begin(), done_.end(), command.command_id()) != done_.end()) {
    return nullptr;
  }
  commands_.push_back(std::make_unique<Command>(command));
  return std::make_unique<AgentMessage>(ToMessage(command));
}

bool PendingCommands::Done(const std::string& command_id) {
  const auto removed = std::erase_if(commands_, [&command_id](const auto& pending) {
    return pending->command_id() == command_id;
  });
  if (removed == 0) return false;
  done_.push_back(command_id);
  if (done_.size() > kDoneKept) done_.pop_front();
  return true;
}

void PendingCommands::FillRecord(AllocationRecord* record) const {
  record->clear_words();
  for (const auto& pending : commands_) *record->add_words() = *pending;
  record->clear_done_command_ids();
  for (const std::string& id : done_) record->add_done_command_ids(id);
}

std::vector<AgentMessage> PendingCommands::Messages() const {
  std::vector<AgentMessage> messages;
  messages.reserve(commands_.size());
  for (const auto& pending : commands_) messages.push_back(ToMessage(*pending));
  return messages;
}

}  // namespace mt::node
