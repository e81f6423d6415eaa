// Precedence of flags, environment, contexts and the cluster of `mtctl dev`; printing with checks.
#include "client/session/session.h"

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <unistd.h>
#include <utility>

#include "client/session/contexts.h"
#include "client/session/local_port.h"
#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool LooksLikeUid(const std::string& text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0)
      return false;
  }
  return true;
}

// The context in effect, if any: by flag, by environment, or the current one of the file.
StatusOr<std::optional<Context>> ContextInForce(const GlobalOptions& options) {
  const std::string from_environment = Env("MTCTL_CONTEXT");
  const std::string& named = options.context.empty() ? from_environment : options.context;
  const std::string path = ContextPath();
  ASSIGN_OR_RETURN(const ContextFile file, ReadContexts(path));
  const std::string& name = named.empty() ? file.current : named;
  if (name.empty()) return std::optional<Context>();
  auto context = NamedContext(file, name);
  if (!context.ok()) return base::Annotate(context.status(), path);
  return std::optional<Context>(std::move(context).value());
}

}  // namespace

std::string StateFolder() {
  const std::string xdg = Env("XDG_STATE_HOME");
  if (!xdg.empty()) return base::JoinPath(xdg, "megatrain");
  const std::string home = Env("HOME");
  return base::JoinPath(home.empty() ? "/tmp" : home, ".local/state/megatrain");
}

std::string DevEndpointFile() { return base::JoinPath(StateFolder(), "dev/endpoint"); }

StatusOr<rpc::Endpoint> ResolveEndpoint(const GlobalOptions& options, std::string* source) {
  std::string ignored;
  std::string& from = source == nullptr ? ignored : *source;
  const auto parse = [&from](const std::string& text, std::string where) {
    from = std::move(where);
    auto endpoint = rpc::ParseEndpoint(text);
    if (!endpoint.ok()) endpoint = base::Annotate(endpoint.status(), from);
    return endpoint;
  };
  if (!options.coordinator.empty()) return parse(options.coordinator, "--coordinator");
  const std::string from_environment = Env("MTCTL_COORDINATOR");
  if (options.context.empty() && !from_environment.empty())
    return parse(from_environment, "MTCTL_COORDINATOR");
  ASSIGN_OR_RETURN(const std::optional<Context> context, ContextInForce(options));
  if (context) return parse(context->endpoint, "context " + context->name);
  const auto file = base::ReadFile(DevEndpointFile());
  if (!file.ok()) {
    // Where the systemd unit's coordinator is.
    if (IsListening(rpc::kDefaultPort)) return parse(rpc::kDefaultHost, "the default");
    return base::Unavailable(
        "no coordinator given, and none at 127.0.0.1:7070: pass --coordinator HOST:PORT, set "
        "MTCTL_COORDINATOR, make a context "
        "with `mtctl context set`, or start one here with `mtctl dev up`");
  }
  std::string text = *file;
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.pop_back();
  return parse(text, DevEndpointFile());
}

void ResolveNamespace(GlobalOptions* options) {
  if (options->namespace_given) return;
  const auto context = ContextInForce(*options);
  options->namespace_error = context.status();
  if (!context.ok()) return;
  const auto& known = *context;
  if (known.has_value() && !known->job_namespace.empty())
    options->job_namespace = known->job_namespace;
}

std::string PlaceFlags(const GlobalOptions& options) {
  std::string flags;
  if (options.namespace_given) flags += " -n " + options.job_namespace;
  if (!options.context.empty()) flags += " --context " + options.context;
  if (!options.coordinator.empty()) flags += " --coordinator " + options.coordinator;
  return flags;
}

std::chrono::milliseconds ConnectLimit(const GlobalOptions& options) {
  return std::chrono::milliseconds(std::llround(options.connect_timeout_s * 1000));
}

StatusOr<std::unique_ptr<Api>> ConnectApi(const GlobalOptions& options) {
  RETURN_IF_ERROR(options.namespace_error);
  ASSIGN_OR_RETURN(const rpc::Endpoint endpoint, ResolveEndpoint(options));
  const auto timeout = std::chrono::milliseconds(std::llround(options.request_timeout_s * 1000));
  return Api::Connect(endpoint, timeout,
                      IsStructured(options.output) ? Texts::kAsTheyCame : Texts::kCleaned,
                      ConnectLimit(options));
}

int64_t NowMicros() { return base::ToUnixMicros(base::Clock::Real()->WallNow()); }

Style MakeStyle(const GlobalOptions& options) {
  const bool capable =
      ::isatty(STDOUT_FILENO) == 1 && Env("NO_COLOR").empty() && Env("TERM") != "dumb";
  const bool color =
      options.color == ColorMode::kAlways || (options.color == ColorMode::kAuto && capable);
  return {.color = color, .time = options.time, .now_us = NowMicros()};
}

TableArgs MakeTableArgs(const GlobalOptions& options) {
  return {.style = MakeStyle(options), .wide = options.output == OutputFormat::kWide};
}

ExitCode PrintText(const std::string& text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (whole && std::fflush(stdout) == 0) return kExitOk;
  return Complain(base::ErrnoError(errno, "write to standard output"), kExitIo);
}

ExitCode RefuseFormat(const GlobalOptions& options, std::string_view verb,
                      std::string_view instead) {
  if (IsTable(options.output) || !options.output_given) return kExitOk;
  return Complain(base::InvalidArgument("{} prints text alone, there is no -o {}; {}", verb,
                                        OutputFormatName(options.output), instead),
                  kExitUsage);
}

ExitCode Print(const View& view, const GlobalOptions& options) {
  return PrintText(Render(view, options.output));
}

ExitCode Complain(const Status& status, ExitCode code) {
  std::fprintf(stderr, "mtctl: %s\n", base::CleanText(base::Message(status)).c_str());
  return code;
}

ExitCode Complain(const Status& status) { return Complain(status, ExitCodeOf(status)); }

v1::GetJobRequest MakeJobRequest(const GlobalOptions& options, const std::string& job) {
  v1::GetJobRequest request;
  std::string name_or_uid = job;
  for (const std::string_view kind : {"job/", "jobs/"})
    if (job.starts_with(kind)) name_or_uid = job.substr(kind.size());
  if (LooksLikeUid(name_or_uid)) {
    request.mutable_job()->set_uid(name_or_uid);
  } else {
    request.mutable_job()->set_name(name_or_uid);
    request.mutable_job()->set_namespace_(options.job_namespace);
  }
  return request;
}

}  // namespace mt::client
