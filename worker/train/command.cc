#include "worker/train/command.h"

#include <array>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace mt::train {
namespace {

using Flag = bool CommandWord::*;
// Bit i of the word is kFlags[i].
constexpr std::array<Flag, 8> kFlags = {
    &CommandWord::stop_with_save, &CommandWord::stop_without_save,
    &CommandWord::checkpoint_now, &CommandWord::hold,
    &CommandWord::resume,         &CommandWord::update,
    &CommandWord::save_due,       &CommandWord::time_over};
constexpr int kAllBits = (1 << kFlags.size()) - 1;

}  // namespace

void CommandWord::Add(CommandKind kind) {
  // In the order of CommandKind, which has none of the clock's.
  this->*kFlags[static_cast<size_t>(kind)] = true;
}

double CommandWord::Encode() const {
  int bits = 0;
  for (size_t i = 0; i < kFlags.size(); ++i) bits |= this->*kFlags[i] ? 1 << i : 0;
  return bits;
}

CommandWord CommandWord::Decode(double word) {
  CHECK(word >= 0 && word <= kAllBits && word == std::floor(word)) << "command word " << word;
  const int bits = static_cast<int>(word);
  CommandWord out;
  for (size_t i = 0; i < kFlags.size(); ++i) out.*kFlags[i] = (bits & 1 << i) != 0;
  return out;
}

std::vector<SentCommand> CommandsUnderWay::TakeActed(int64_t step) {
  std::vector<SentCommand> acted;
  while (!sent_.empty() && sent_.front().step <= step) {
    acted.push_back(std::move(sent_.front()));
    sent_.pop_front();
  }
  return acted;
}

std::optional<RunSettings> CommandsUnderWay::UpdateOf(int64_t step) const {
  for (const SentCommand& sent : sent_) {
    if (sent.step == step && sent.command.kind == CommandKind::kUpdate)
      return sent.command.settings;
  }
  return std::nullopt;
}

}  // namespace mt::train
