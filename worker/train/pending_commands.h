// Commands between the step that carries them and the moment when they act.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/train/command.h"

namespace mt::train {

// A command on its way, and the step whose vector carries it (0: an idle reduction).
struct SentCommand {
  int64_t step = 0;
  Command command;
};

// Rank 0's queue of them, in the order in which they were sent. One thread.
class PendingCommands {
 public:
  void Sent(int64_t step, Command command) { sent_.push_back({step, std::move(command)}); }
  // Takes out the commands that this step or an earlier one carried.
  std::vector<SentCommand> TakeActed(int64_t step);
  // The settings that the update of this step asks for; nullopt if it carried none.
  std::optional<RunSettings> UpdateOf(int64_t step) const;
  // The same of the steps that its profile asks for.
  std::optional<int64_t> ProfileOf(int64_t step) const;
  // And of the texts that its decode asks for.
  std::optional<TextRequest> TextsOf(int64_t step) const;

 private:
  std::deque<SentCommand> sent_;
};

}  // namespace mt::train
