// What agents and ranks answer to commands: an agent takes a command or refuses it, and later rank
// 0 says that it has acted on every rank, or failed. Not thread-safe (the core's thread).
#pragma once

#include <string>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class CommandDone;
class GivenWord;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobPlacement;
class JobTeardown;
class JobVerbs;
class ReaderPins;

class CommandAnswers {
 public:
  struct Parts {
    JobPlacement* placement;
    JobTeardown* teardown;
    JobVerbs* verbs;
    ReaderPins* pins;
  };
  // All outlive it.
  CommandAnswers(const KeeperTools& tools, const Parts& parts) : tools_(tools), parts_(parts) {}

  // The agent of `node` took a command, or refused it with a message. False: no such command.
  bool Acknowledged(const std::string& command_id, const std::string& node, bool accepted,
                    const std::string& message);
  // A command has acted on every rank, or failed. False: no such command was given.
  bool Acted(v1::StoredJob& job, const v1::CommandDone& done);

 private:
  void Refused(v1::StoredJob& job, const v1::GivenWord& command, const Status& why);
  void SaveDone(v1::StoredJob& job, const v1::GivenWord& command, const v1::CommandDone& done);
  void ProfileDone(const v1::GivenWord& command, const v1::CommandDone& done);
  void DecodeDone(const v1::GivenWord& command, const v1::CommandDone& done);
  void StopDone(v1::StoredJob& job, const v1::CommandDone& done);
  // The save of a release failed, and the ranks wait.
  void NotReleased(v1::StoredJob& job, const v1::CommandDone& done);

  KeeperTools tools_;
  Parts parts_;
};

}  // namespace mt::daemon
