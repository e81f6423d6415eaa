// Commands to a running job. World rank 0 learns of them; each rides as a word in the end-of-step
// vector, so that every rank acts on it at the same step boundary: a word that step k carries acts
// before step k + 2.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace mt::train {

enum class CommandKind : uint8_t { kStopWithSave, kStopWithoutSave, kCheckpointNow };

struct Command {
  CommandKind kind = CommandKind::kCheckpointNow;
  std::string id;  // told to TrainObserver::OnCommandDone; may be empty
};

// Polled once per step, on world rank 0's training thread; must return at once.
class CommandSource {
 public:
  virtual ~CommandSource() = default;
  // The oldest command not yet returned.
  virtual std::optional<Command> Poll() = 0;
};

// What a step's vector carries: a sum of bits, exact as a double. 0: nothing.
struct CommandWord {
  bool stop_with_save = false;
  bool stop_without_save = false;
  bool checkpoint_now = false;

  void Add(CommandKind kind);
  double Encode() const;
  static CommandWord Decode(double word);
  bool empty() const { return !stop_with_save && !stop_without_save && !checkpoint_now; }
};

// Rank 0's list of commands that are under way: sent with a step, done when that step's word acts.
class CommandsUnderWay {
 public:
  void Sent(int64_t step, const std::string& id) { sent_.push_back({step, id}); }
  // Ids of the commands sent with this step or an earlier one; they leave the list.
  std::vector<std::string> TakeActed(int64_t step);

 private:
  struct Entry {
    int64_t step = 0;
    std::string id;
  };
  std::deque<Entry> sent_;
};

}  // namespace mt::train
