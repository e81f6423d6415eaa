// What every command shares: global flags, where the coordinator is, how answers and failures are
// printed. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "client/api.h"
#include "client/exit_code.h"
#include "client/output/render.h"
#include "client/output/tables.h"
#include "common/base/status.h"
#include "common/rpc/control_numbers.h"

namespace mt::client {

enum class ColorMode { kAuto, kAlways, kNever };

struct GlobalOptions {
  std::string coordinator;  // --coordinator; empty: see ResolveEndpoint
  std::string context;      // --context; empty: MTCTL_CONTEXT, then the file's current one
  std::string job_namespace = "default";
  bool namespace_given = false;  // by -n or MTCTL_NAMESPACE: it wins over a job file's
  Status namespace_error;        // the contexts could not be read: ConnectApi says so
  OutputFormat output = OutputFormat::kTable;
  ColorMode color = ColorMode::kAuto;
  TimeFormat time = TimeFormat::kRelative;
  double request_timeout_s = std::chrono::duration<double>(rpc::kClientRequest).count();
};

// $XDG_STATE_HOME/megatrain, or ~/.local/state/megatrain.
std::string StateFolder();
// The file in which `mtctl dev up` leaves its endpoint.
std::string DevEndpointFile();

// The first of: --coordinator, the endpoint of --context, MTCTL_COORDINATOR, the endpoint of
// MTCTL_CONTEXT or else of the current context, the endpoint of `dev up`. kUnavailable where none
// is set says how to give one. `source` (may be null) tells which it was.
StatusOr<rpc::Endpoint> ResolveEndpoint(const GlobalOptions& options,
                                        std::string* source = nullptr);
// Where neither -n nor MTCTL_NAMESPACE gave a namespace: that of the context in force, if any.
void ResolveNamespace(GlobalOptions* options);
StatusOr<std::unique_ptr<Api>> ConnectApi(const GlobalOptions& options);

// Colours where asked for, or on a terminal that has them and without NO_COLOR.
Style MakeStyle(const GlobalOptions& options);
TableArgs MakeTableArgs(const GlobalOptions& options);
int64_t NowMicros();

// Prints the answer in the format of -o; returns kExitOk, or kExitIo where stdout cannot be
// written.
ExitCode Print(const View& view, const GlobalOptions& options);
ExitCode PrintText(const std::string& text);

// "mtctl: <message>" on stderr; returns the exit code that goes with the status.
ExitCode Complain(const Status& status);
ExitCode Complain(const Status& status, ExitCode code);

// A JobRef by name in the namespace, or by uid where the text has a uid's form.
v1::GetJobRequest MakeJobRequest(const GlobalOptions& options, const std::string& name_or_uid);

}  // namespace mt::client
