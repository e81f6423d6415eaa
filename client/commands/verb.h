// The common part of verbs on a job: flags, confirmation before what cannot be undone, the request
// id that makes a repeat harmless, waiting for the operation, and printing its result.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "client/commands/commands.h"
#include "client/session/session.h"

namespace megatrain::v1 {
class JobRef;
}

namespace mt::client {

// Values of the flags.
struct VerbArgs {
  std::string job;
  std::string reason;
  std::string request_id;  // empty: a new one is generated
  bool wait = false;
  double timeout_s = 0;  // limit of the wait; 0: none
  bool yes = false;
};

// Which flags a verb has.
struct VerbFlags {
  bool waits = false;        // it waits unless told otherwise (--no-wait)
  bool destructive = false;  // asks for confirmation on a terminal, elsewhere requires --yes
};

// Adds `job` and the flags to `command`; `args` must live as long as the app.
void AddVerbFlags(CLI::App* command, const VerbFlags& flags, VerbArgs* args);
void AddYesFlag(CLI::App* command, bool* yes);

// True where the verb may proceed: --yes, or the answer "y" on a terminal. Otherwise *code is
// kExitUsage (no terminal) or kExitError (another answer), with the reason on stderr.
bool Confirmed(bool yes, std::string_view question, ExitCode* code);

// Connects, calls `send` with args whose request_id is set, waits for the operation where asked
// for, and prints it. Returns the exit code of the failure or of the operation.
ExitCode RunVerb(VerbArgs args, const GlobalOptions& options,
                 const std::function<StatusOr<v1::Operation>(const Api&, const VerbArgs&)>& send);

// Sets name and namespace, or the uid where `job` has a uid's form.
void FillJobRef(const GlobalOptions& options, const std::string& job, v1::JobRef* ref);

// Makes a verb's request with job, reason and request_id set.
template <class Request>
Request MakeVerbRequest(const VerbArgs& args, const GlobalOptions& options) {
  Request request;
  FillJobRef(options, args.job, request.mutable_job());
  request.set_reason(args.reason);
  request.set_request_id(args.request_id);
  return request;
}

}  // namespace mt::client
