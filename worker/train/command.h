// Commands to a running job. World rank 0 learns of them; each rides as a word in the end-of-step
// vector, so that every rank acts on it at the same step boundary: a word that step k carries acts
// before step k + 2, one that an idle reduction of held ranks carries acts at once.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/train/records.h"
#include "worker/train/run_settings.h"

namespace mt::train {

enum class CommandKind : uint8_t {
  kStopWithSave,
  kStopWithoutSave,
  kCheckpointNow,
  kHold,    // all ranks wait after the step, and keep what they have
  kResume,  // held ranks go on
  kUpdate,  // takes over `settings`
};

struct Command {
  CommandKind kind = CommandKind::kCheckpointNow;
  std::string id;  // told to TrainObserver::OnCommandDone; may be empty
  std::optional<RunSettings> settings = std::nullopt;  // of kUpdate
};

// What became of a command, once its word has acted on every rank and, where it saves, the save is
// over.
struct CommandResult {
  std::string id;
  CommandKind kind = CommandKind::kCheckpointNow;
  int64_t word_step = 0;  // the step that carried the word; 0: an idle reduction, or none did
  int64_t step = 0;       // the last one done when it acted
  std::optional<CheckpointRecord> checkpoint;  // of a save: what is on disk
  Status error;                                // of a save or an update that failed
};

// Polled once per step and, while ranks are held, per idle reduction; on world rank 0's training
// thread; must return at once.
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
  bool hold = false;
  bool resume = false;
  bool update = false;
  bool save_due = false;   // checkpoint.every has passed on rank 0
  bool time_over = false;  // training.exit_after has passed on rank 0

  void Add(CommandKind kind);
  double Encode() const;
  static CommandWord Decode(double word);
  bool empty() const { return *this == CommandWord{}; }
  friend bool operator==(const CommandWord&, const CommandWord&) = default;
};

// A command on its way, and the step that carries it.
struct SentCommand {
  int64_t step = 0;
  Command command;
};

// Rank 0's list of commands that are under way: sent with a step, done when that step's word acts.
class CommandsUnderWay {
 public:
  void Sent(int64_t step, Command command) { sent_.push_back({step, std::move(command)}); }
  // The commands sent with this step or an earlier one; they leave the list.
  std::vector<SentCommand> TakeActed(int64_t step);
  // What the update of this step asks for.
  std::optional<RunSettings> UpdateOf(int64_t step) const;

 private:
  std::deque<SentCommand> sent_;
};

}  // namespace mt::train
