// Commands that ranks have not answered yet: hold, resume, checkpoint, update and stop, which go
// through the agent of rank 0; and the kill, which goes to every agent. A command is kept in
// StoredJob (`words`, `stop`) until the ranks have answered it and is sent again whenever they may
// not have heard it: its id makes it act once. Commands act in the order in which they were given.
// Not thread-safe (the core's thread).
#pragma once

#include <string>
#include <string_view>

#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class CheckpointLabel;
enum Command_Verb : int;  // NOLINT(readability-identifier-naming): protoc's name
class Generate;
class GivenWord;
}  // namespace megatrain::v1

namespace mt::daemon {

class WorkerHub;

// What the first part of a command's id says.
enum class CommandIdKind {
  kKill,  // "kill/<job uid>/<epoch>", to every agent
  kStop,  // "stop/<job uid>/<epoch>/<16 hex digits>", to rank 0, in older stores without the digits
  kQueued,  // "word/<job uid>/<epoch>/<16 hex digits>", any other to rank 0: there may be many
};

struct CommandId {
  CommandIdKind kind;
  JobEpoch job;
};

// The store keeps it as a number.
v1::Command_Verb VerbOf(const v1::GivenWord& command);

class PendingCommands {
 public:
  // Both outlive it.
  PendingCommands(Ledger* ledger, WorkerHub* hub) : ledger_(ledger), hub_(hub) {}

  // False: not an id that was given out.
  static bool Parse(std::string_view text, CommandId* id);

  struct Given {
    v1::Command_Verb verb;
    std::string operation = {};                  // that waits for the answer; empty: none
    const v1::CheckpointLabel* label = nullptr;  // of CHECKPOINT_NOW, which may have none
    int profile_steps = 0;                       // of PROFILE
    const v1::Generate* generate = nullptr;      // of DECODE
  };
  // The command is sent now if rank 0 takes commands, else once it does (Send).
  void Give(v1::StoredJob& job, const Given& given, const Order& order);
  // Sends what is not answered, in order, and then the command to stop where that was given.
  void Send(const v1::StoredJob& job);
  // Forgets commands of that verb that rank 0 cannot have heard yet.
  void DropUnheard(v1::StoredJob& job, v1::Command_Verb verb);
  // Forgets commands of that verb, which a newer one makes void.
  static void Drop(v1::StoredJob& job, v1::Command_Verb verb);
  // The epoch is over: forgets all but saves that an operation waits for. Those become commands of
  // the job's epoch as it is now, which are sent once there are ranks again.
  void CloseEpoch(v1::StoredJob& job);
  // Takes the command out; false: it was answered before, or never given.
  bool Take(v1::StoredJob& job, const std::string& command_id, v1::GivenWord* command);
  // Whether one of that verb is not answered yet.
  static bool Has(const v1::StoredJob& job, v1::Command_Verb verb);
  // Whether the operation waits for the answer to one.
  static bool WaitsFor(const v1::StoredJob& job, const std::string& operation);

  // Sends the command to stop, as StoredJob.stop has it.
  void SendStop(const v1::StoredJob& job);
  // An id for the next stop of the job's epoch, of which there may be several: one that keeps its
  // ranks where the save fails may be tried again.
  static std::string NewStopId(const v1::Job& job);
  // Tells the agent to end the processes of that epoch now.
  void SendKill(const JobEpoch& job, const std::string& node, std::string_view reason);

 private:
  void SendOne(const v1::StoredJob& job, const v1::GivenWord& command);

  Ledger* ledger_;
  WorkerHub* hub_;
};

}  // namespace mt::daemon
