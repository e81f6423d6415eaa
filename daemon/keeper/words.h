// Words given to ranks, through the agent of rank 0: hold, resume, checkpoint, update, stop; and
// the kill, which goes to every agent. A word is kept in StoredJob until the ranks have answered it
// and is sent again whenever they may not have heard it: its id makes it act once. Words act in the
// order in which they were given. Not thread-safe (the core's thread).
#pragma once

#include <string>
#include <string_view>

#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class GivenWord;
}

namespace mt::daemon {

class WorkerHub;

enum class CommandKind { kKill, kStop, kWord };

struct CommandId {
  CommandKind kind;
  JobEpoch job;
};

class Words {
 public:
  Words(Ledger* ledger, WorkerHub* hub) : ledger_(ledger), hub_(hub) {}

  // False: not an id that was given out.
  static bool Parse(std::string_view text, CommandId* id);

  // `verb` is a Command.Verb; `operation` waits for the answer ("" for none). Sent now if rank 0
  // takes words, else once it does (Send).
  void Give(v1::StoredJob& job, int verb, const std::string& operation, const Order& order);
  // Sends what is not answered, in order, and then the word to stop where that was given.
  void Send(const v1::StoredJob& job);
  // Forgets words of that verb that rank 0 cannot have heard yet.
  void DropUnheard(v1::StoredJob& job, int verb);
  // A newer one makes it void.
  static void Drop(v1::StoredJob& job, int verb);
  // Takes the word out; false: it was answered before, or never given.
  bool Take(v1::StoredJob& job, const std::string& command_id, v1::GivenWord* word);
  static bool Has(const v1::StoredJob& job, int verb);
  static bool WaitsFor(const v1::StoredJob& job, const std::string& operation);

  // StoredJob.stop says what is to be done.
  void SendStop(const v1::StoredJob& job);
  static std::string StopId(const v1::Job& job);
  void SendKill(const JobEpoch& job, const std::string& node, std::string_view reason);

 private:
  void SendOne(const v1::StoredJob& job, const v1::GivenWord& word);

  Ledger* ledger_;
  WorkerHub* hub_;
};

}  // namespace mt::daemon
