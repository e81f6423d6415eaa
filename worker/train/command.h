// Commands to a running job: what a user or the coordinator orders, and what became of it. World
// rank 0 takes them from its CommandSource; how they reach every rank at one step boundary is
// command_relay.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/label.h"
#include "worker/train/records.h"
#include "worker/train/run_settings.h"
#include "worker/train/samples/texts.h"

namespace mt::train {

enum class CommandKind : uint8_t {
  kStopWithSave,
  kStopWithoutSave,
  kCheckpointNow,
  kHold,     // all ranks wait after the step and keep what they have
  kResume,   // held ranks go on
  kUpdate,   // `settings` become the run's
  kRelease,  // saves and stops; where the save fails, all ranks wait as after kHold
  kProfile,  // the next `profile_steps` steps are traced on every rank
  kDecode,   // the ranks write `texts`, and the next step follows
};

struct Command {
  CommandKind kind = CommandKind::kCheckpointNow;
  std::string id;  // returned in its CommandResult; may be empty
  std::optional<RunSettings> settings = std::nullopt;  // of kUpdate
  checkpoint::Label label = {};                        // of kCheckpointNow
  int64_t profile_steps = 0;                           // of kProfile
  std::optional<TextRequest> texts = std::nullopt;     // of kDecode
};

// What became of a command, once it has acted on every rank and, where it saves or traces, that is
// over.
struct CommandResult {
  std::string id;
  CommandKind kind = CommandKind::kCheckpointNow;
  int64_t carrier_step = 0;  // the step whose vector carried it; 0: an idle reduction, or none
  int64_t step = 0;          // the last one done when it acted
  std::optional<CheckpointRecord> checkpoint;  // of a save: what is on disk
  Status error;  // of a save, an update, a profile or a decode that failed
  std::optional<ProfileRecord> profile = std::nullopt;  // of a profile: its trace
  std::vector<DecodedText> texts = {};                  // of a decode
  bool held = false;  // of a release whose save failed: the ranks wait, nothing is given up
};

// Polled once per step and, while ranks are held, once per idle reduction, on the training thread
// of world rank 0. Must return at once.
class CommandSource {
 public:
  virtual ~CommandSource() = default;
  // The oldest command that was not returned yet.
  virtual std::optional<Command> Poll() = 0;
};

}  // namespace mt::train
