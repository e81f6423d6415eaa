#include "client/session.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/base/files.h"
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

}  // namespace

std::string StateFolder() {
  const std::string xdg = Env("XDG_STATE_HOME");
  if (!xdg.empty()) return base::JoinPath(xdg, "megatrain");
  const std::string home = Env("HOME");
  return base::JoinPath(home.empty() ? "/tmp" : home, ".local/state/megatrain");
}

std::string DevEndpointFile() { return base::JoinPath(StateFolder(), "dev/endpoint"); }

StatusOr<rpc::Endpoint> ResolveEndpoint(const GlobalOptions& options) {
  if (!options.coordinator.empty()) return rpc::ParseEndpoint(options.coordinator);
  const std::string from_environment = Env("MTCTL_COORDINATOR");
  if (!from_environment.empty()) {
    auto endpoint = rpc::ParseEndpoint(from_environment);
    if (!endpoint.ok()) return base::Annotate(endpoint.status(), "MTCTL_COORDINATOR");
    return endpoint;
  }
  const auto file = base::ReadFile(DevEndpointFile());
  if (!file.ok()) {
    return base::Unavailable(
        "no coordinator given: pass --coordinator HOST:PORT, set MTCTL_COORDINATOR, or start one "
        "here with "
        "`mtctl dev up`");
  }
  std::string text = *file;
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.pop_back();
  auto endpoint = rpc::ParseEndpoint(text);
  if (!endpoint.ok()) return base::Annotate(endpoint.status(), DevEndpointFile());
  return endpoint;
}

StatusOr<std::unique_ptr<Api>> ConnectApi(const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const rpc::Endpoint endpoint, ResolveEndpoint(options));
  const auto timeout = std::chrono::milliseconds(std::llround(options.request_timeout_s * 1000));
  return Api::Connect(endpoint, timeout);
}

ExitCode Complain(const Status& status) {
  std::fprintf(stderr, "mtctl: %s\n", base::Message(status).c_str());
  return ExitCodeOf(status);
}

v1::GetJobRequest MakeJobRequest(const GlobalOptions& options, const std::string& name_or_uid) {
  v1::GetJobRequest request;
  if (LooksLikeUid(name_or_uid)) {
    request.mutable_job()->set_uid(name_or_uid);
  } else {
    request.mutable_job()->set_name(name_or_uid);
    request.mutable_job()->set_namespace_(options.job_namespace);
  }
  return request;
}

}  // namespace mt::client
