// The common part of all commands: global flags, finding the coordinator, and printing answers and
// failures. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "client/output/render.h"
#include "client/output/tables.h"
#include "client/session/api.h"
#include "client/session/exit_code.h"
#include "common/base/status.h"
#include "common/control/numbers.h"

namespace mt::client {

enum class ColorMode { kAuto, kAlways, kNever };

// Values of the global flags; see `mtctl --help`.
struct GlobalOptions {
  std::string coordinator;  // --coordinator; "": see ResolveEndpoint
  std::string context;      // --context; "": $MTCTL_CONTEXT, then the current one of the file
  std::string job_namespace = "default";
  bool namespace_given = false;  // by -n or $MTCTL_NAMESPACE, which override a job file's
  Status namespace_error;        // the contexts could not be read; ConnectApi returns it
  OutputFormat output = OutputFormat::kTable;
  bool output_given = false;  // by -o on the command line, not by $MTCTL_OUTPUT
  ColorMode color = ColorMode::kAuto;
  TimeFormat time = TimeFormat::kRelative;
  double connect_timeout_s = std::chrono::duration<double>(control::kClientDial).count();
  double request_timeout_s = std::chrono::duration<double>(control::kClientRequest).count();
};

// $XDG_STATE_HOME/megatrain, or ~/.local/state/megatrain.
std::string StateFolder();
// The file in which `mtctl dev up` stores its endpoint.
std::string DevEndpointFile();

// The first that is set of: --coordinator, the endpoint of --context, $MTCTL_COORDINATOR, the
// endpoint of $MTCTL_CONTEXT or of the current context, the endpoint of `dev up`, 127.0.0.1:7070
// where somebody listens. kUnavailable where none is, with advice. *source (may be null) names the
// one that was taken.
StatusOr<rpc::Endpoint> ResolveEndpoint(const GlobalOptions& options,
                                        std::string* source = nullptr);
// Sets the namespace of the context in effect, if any, unless -n or $MTCTL_NAMESPACE gave one.
void ResolveNamespace(GlobalOptions* options);
// The flags that lead another command line to the same place: " -n team", or nothing.
std::string PlaceFlags(const GlobalOptions& options);
// How long a connection is waited for: connect_timeout_s.
std::chrono::milliseconds ConnectLimit(const GlobalOptions& options);
// Connects to the resolved endpoint; blocks for up to ConnectLimit. Texts of answers are cleaned
// for a terminal unless the output is for programs. Errors as ResolveEndpoint and Api::Connect.
StatusOr<std::unique_ptr<Api>> ConnectApi(const GlobalOptions& options);

// Colours where requested, or on a terminal that supports them and without $NO_COLOR.
Style MakeStyle(const GlobalOptions& options);
TableArgs MakeTableArgs(const GlobalOptions& options);
// The current time in Unix microseconds.
int64_t NowMicros();

// Prints the answer in the format of -o. Returns kExitOk, or kExitIo where stdout cannot be
// written.
ExitCode Print(const View& view, const GlobalOptions& options);
// As it is; it need not be text.
ExitCode PrintText(const std::string& text);
// For verbs that print text alone: where -o asks for anything else, says so on stderr with what to
// do `instead` and returns kExitUsage; else kExitOk. What $MTCTL_OUTPUT asks of all verbs is not
// asked of these.
ExitCode RefuseFormat(const GlobalOptions& options, std::string_view verb,
                      std::string_view instead);

// Prints "mtctl: <message>" on stderr. Returns the status's exit code, or `code`.
ExitCode Complain(const Status& status);
ExitCode Complain(const Status& status, ExitCode code);

// A request for a job by uid where the text has a uid's form, else by name within the namespace;
// "job/NAME" is NAME.
v1::GetJobRequest MakeJobRequest(const GlobalOptions& options, const std::string& job);

}  // namespace mt::client
