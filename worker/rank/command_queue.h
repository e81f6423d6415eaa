// The queue of commands for the trainer of world rank 0: filled by other threads (the agent's
// channel, the signal thread) and polled by the trainer once per step. Thread-safe.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "worker/train/command.h"

namespace mt::rank {

class CommandQueue final : public train::CommandSource {
 public:
  // Appends a command. One whose id was seen before is ignored, because an agent repeats commands
  // that may have been lost.
  void Push(train::Command command) {
    base::MutexLock lock(&mu_);
    if (!command.id.empty() && !seen_.insert(command.id).second) return;
    commands_.push_back(std::move(command));
  }

  // Removes and returns the oldest command, or nullopt.
  std::optional<train::Command> Poll() override {
    base::MutexLock lock(&mu_);
    if (commands_.empty()) return std::nullopt;
    train::Command command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }

 private:
  base::Mutex mu_;
  std::deque<train::Command> commands_ GUARDED_BY(mu_);
  std::set<std::string> seen_ GUARDED_BY(mu_);
};

}  // namespace mt::rank
