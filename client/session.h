// What every command shares: global flags, where the coordinator is, how a failure is said. One
// thread.
#pragma once

#include <memory>
#include <string>

#include "client/api.h"
#include "client/exit_code.h"
#include "common/base/status.h"

namespace mt::client {

enum class OutputFormat { kTable, kJson };

struct GlobalOptions {
  std::string coordinator;  // --coordinator; empty: MTCTL_COORDINATOR, then what `dev up` wrote
  std::string job_namespace = "default";
  OutputFormat output = OutputFormat::kTable;
  double request_timeout_s = 5;
};

// $XDG_STATE_HOME/megatrain, or ~/.local/state/megatrain.
std::string StateFolder();
// The file in which `mtctl dev up` leaves its endpoint.
std::string DevEndpointFile();

// Flag, then MTCTL_COORDINATOR, then the endpoint of `dev up`. kUnavailable where none is set says
// how to give one.
StatusOr<rpc::Endpoint> ResolveEndpoint(const GlobalOptions& options);
StatusOr<std::unique_ptr<Api>> ConnectApi(const GlobalOptions& options);

// "mtctl: <message>" on stderr; returns the exit code that goes with the status.
ExitCode Complain(const Status& status);

// A JobRef by name in the namespace, or by uid where the text has a uid's form.
v1::GetJobRequest MakeJobRequest(const GlobalOptions& options, const std::string& name_or_uid);

}  // namespace mt::client
