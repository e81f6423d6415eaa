// Commands on their way to the trainer of world rank 0: put in by another thread (the agent's
// channel, the signal thread), taken out once per step.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "worker/train/command.h"

namespace mt::rank {

class WordQueue final : public train::CommandSource {
 public:
  // A command whose id was seen before is ignored: an agent repeats what may have been lost.
  void Push(train::Command command) {
    base::MutexLock lock(&mu_);
    if (!command.id.empty() && !seen_.insert(command.id).second) return;
    commands_.push_back(std::move(command));
  }

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
