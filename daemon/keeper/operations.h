// Operations: what a user asked for and is told of until it is done. Each begins and ends with an
// event; both are on disk with what they changed. The book knows no transition: JobVerbs and
// CommandAnswers say when one is done. Not thread-safe (the core's thread).
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

// Who asks for something, why, and under which request id.
struct Order {
  std::string actor;
  std::string reason;      // as the user gave it; may be empty
  std::string request_id;  // chosen by the user; empty where there is none
};

class OperationBook {
 public:
  // The ledger outlives the book and owns the operations.
  explicit OperationBook(Ledger* ledger) : ledger_(ledger) {}

  struct Opening {
    std::string verb;  // Operation.verb
    std::string mode = {};
    std::string progress = {};
  };
  v1::Operation* Open(const v1::Job& job, const Opening& opening, const Order& order);
  // The open operation of that verb and mode ("" for any); nullptr: none.
  v1::Operation* FindOpen(const v1::Job& job, std::string_view verb, std::string_view mode = {});

  // Shows what the operation waits for; silent where that is shown already.
  void Progress(v1::Operation& operation, std::string_view progress);
  void Succeed(v1::Operation& operation, std::string_view result);
  // The status carries code, reason and message.
  void Fail(v1::Operation& operation, const Status& status);
  // A newer verb takes the place of open pauses and resumes: they end ABORTED and name it.
  void Supersede(const v1::Job& job, const v1::Operation& newer);
  // The job is in its final state: cancel and kill have succeeded, whatever is left has not.
  void EndAll(const v1::Job& job);
  // The job's ranks are gone, and the steps since its last checkpoint with them: a release or a
  // cancel that was to save them has failed (SAVE_FAILED), whatever state the job is in now.
  void FailUnsaved(const v1::StoredJob& job);
  // The job's ranks are gone: saves, profiles or texts that they owe have failed, with the job's
  // message as the reason.
  void FailSaves(const v1::Job& job);
  void FailProfiles(const v1::Job& job);
  void FailDecodes(const v1::Job& job);
  // The job's newest texts are those of this decode: earlier ones give theirs up (A2).
  void KeepTextsOf(const v1::Operation& newest);
  // The epoch that was to save is closed, and when there is another one nobody knows
  // (EPOCH_CLOSED).
  void FailClosed(const v1::Job& job);

 private:
  void FailOwed(const v1::Job& job, std::string_view verb, std::string_view what);
  void End(v1::Operation& operation, std::string_view event, std::string_view message);

  Ledger* ledger_;
};

}  // namespace mt::daemon
