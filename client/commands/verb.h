// What the verbs on a job have in common: their flags, the question before what cannot be undone,
// the request id, the wait for the operation, and how its result is printed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "client/commands/commands.h"
#include "client/session.h"

namespace megatrain::v1 {
class JobRef;
}

namespace mt::client {

struct VerbArgs {
  std::string job;
  std::string reason;
  std::string request_id;  // empty: a new one
  bool wait = false;
  double timeout_s = 0;  // of the wait; 0: as long as it takes
  bool yes = false;
};

struct VerbFlags {
  bool waits = false;        // --wait is the default
  bool destructive = false;  // asks on a terminal, else needs --yes
};

// Adds `job` and the flags; `args` must live as long as the app.
void AddVerbFlags(CLI::App* command, const VerbFlags& flags, VerbArgs* args);
void AddYesFlag(CLI::App* command, bool* yes);

// True where it may be done: --yes, or "y" on a terminal. Else *code is kExitUsage (no terminal) or
// kExitError (the answer was no), with the reason on stderr.
bool Confirmed(bool yes, std::string_view question, ExitCode* code);

// Sends the request (with the args it is given, whose request_id is set), waits where asked for,
// prints the operation.
ExitCode RunVerb(VerbArgs args, const GlobalOptions& options,
                 const std::function<StatusOr<v1::Operation>(const Api&, const VerbArgs&)>& send);

void FillJobRef(const GlobalOptions& options, const std::string& job, v1::JobRef* ref);

// Fills job, reason and request_id of any verb's request.
template <class Request>
Request MakeVerbRequest(const VerbArgs& args, const GlobalOptions& options) {
  Request request;
  FillJobRef(options, args.job, request.mutable_job());
  request.set_reason(args.reason);
  request.set_request_id(args.request_id);
  return request;
}

}  // namespace mt::client
