// A plain queue: steps carry commands in rising order, so those that have acted are at its front.
#include "worker/train/pending_commands.h"

#include <utility>

namespace mt::train {

std::vector<SentCommand> PendingCommands::TakeActed(int64_t step) {
  std::vector<SentCommand> acted;
  while (!sent_.empty() && sent_.front().step <= step) {
    acted.push_back(std::move(sent_.front()));
    sent_.pop_front();
  }
  return acted;
}

std::optional<RunSettings> PendingCommands::UpdateOf(int64_t step) const {
  for (const SentCommand& sent : sent_) {
    if (sent.step == step && sent.command.kind == CommandKind::kUpdate)
      return sent.command.settings;
  }
  return std::nullopt;
}

std::optional<int64_t> PendingCommands::ProfileOf(int64_t step) const {
  for (const SentCommand& sent : sent_) {
    if (sent.step == step && sent.command.kind == CommandKind::kProfile)
      return sent.command.profile_steps;
  }
  return std::nullopt;
}

std::optional<TextRequest> PendingCommands::TextsOf(int64_t step) const {
  for (const SentCommand& sent : sent_) {
    if (sent.step == step && sent.command.kind == CommandKind::kDecode) return sent.command.texts;
  }
  return std::nullopt;
}

}  // namespace mt::train
