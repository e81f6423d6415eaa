#include "worker/node/ranks/pending_words.h"

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
  word.set_reason(command.reason());
  if (command.has_spec()) *word.mutable_spec() = command.spec();
  return message;
}

}  // namespace

PendingWords::PendingWords() = default;
PendingWords::PendingWords(const AllocationRecord& record)
    : done_(record.done_command_ids().begin(), record.done_command_ids().end()) {
  for (const Command& word : record.words()) words_.push_back(std::make_unique<Command>(word));
}
PendingWords::~PendingWords() = default;

std::unique_ptr<AgentMessage> PendingWords::Add(const Command& command) {
  const bool known = std::any_of(words_.begin(), words_.end(), [&command](const auto& word) {
    return word->command_id() == command.command_id();
  });
  if (known || std::find(done_.begin(), done_.end(), command.command_id()) != done_.end()) {
    return nullptr;
  }
  words_.push_back(std::make_unique<Command>(command));
  return std::make_unique<AgentMessage>(ToMessage(command));
}

bool PendingWords::Done(const std::string& command_id) {
  const auto removed = std::erase_if(
      words_, [&command_id](const auto& word) { return word->command_id() == command_id; });
  if (removed == 0) return false;
  done_.push_back(command_id);
  if (done_.size() > kDoneKept) done_.pop_front();
  return true;
}

void PendingWords::FillRecord(AllocationRecord* record) const {
  record->clear_words();
  for (const auto& word : words_) *record->add_words() = *word;
  record->clear_done_command_ids();
  for (const std::string& id : done_) record->add_done_command_ids(id);
}

std::vector<AgentMessage> PendingWords::Messages() const {
  std::vector<AgentMessage> messages;
  messages.reserve(words_.size());
  for (const auto& word : words_) messages.push_back(ToMessage(*word));
  return messages;
}

}  // namespace mt::node
