// `mtctl version`: versions of this program and of the coordinator, and a warning where the latter
// listens without protection.
#include "common/rpc/version.h"

#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/output/json.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

std::string VersionText(const v1::ServerInfo& server, const std::string& asked,
                        const Style& style) {
  std::string out = fmt::format("mtctl        {}\n", rpc::Version());
  out +=
      fmt::format("coordinator  {} at {}{}\n", server.version(), asked,
                  server.insecure() ? " (insecure: listens beyond this machine without TLS)" : "");
  out += fmt::format("started      {}\nuid          {}\n", TimeText(style, server.started_us()),
                     server.coordinator_uid());
  if (!server.cluster_id().empty())
    out += fmt::format("cluster      {}\nterm         {}\n", server.cluster_id(), server.term());
  if (!server.no_orders().empty()) out += fmt::format("gives no orders: {}\n", server.no_orders());
  if (!server.http_endpoint().empty())
    out += fmt::format("metrics      http://{}/metrics\n", server.http_endpoint());
  if (!server.no_orders().empty()) out += fmt::format("no orders    {}\n", server.no_orders());
  return out;
}

ExitCode RunVersion(bool client_only, const GlobalOptions& options) {
  const std::string mine(rpc::Version());
  nlohmann::ordered_json tree = {{"client", {{"version", mine}}}};
  std::string text = fmt::format("mtctl        {}\n", mine);
  ExitCode code = kExitOk;
  if (!client_only) {
    const auto endpoint = ResolveEndpoint(options);
    auto api = ConnectApi(options);
    const auto server = api.ok() ? (*api)->GetInfo() : StatusOr<v1::ServerInfo>(api.status());
    if (server.ok()) {
      tree["server"] = MessageToJson(*server);
      text = VersionText(*server, endpoint.ok() ? endpoint->ToString() : "", MakeStyle(options));
      if (server->version() != mine) {
        std::fprintf(stderr,
                     "mtctl: warning: mtctl is %s, the coordinator is %s; use one version\n",
                     mine.c_str(), server->version().c_str());
      }
    } else {
      code = Complain(server.status());
    }
  }
  const ExitCode printed = PrintText(IsStructured(options.output)
                                         ? RenderTree(tree, options.output)
                                         : (options.output == OutputFormat::kNone   ? ""
                                            : options.output == OutputFormat::kName ? mine + "\n"
                                                                                    : text));
  return printed == kExitOk ? code : printed;
}

}  // namespace

void AddVersion(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("version", "Versions of mtctl and of the coordinator");
  auto client_only = std::make_shared<bool>(false);
  command->add_flag("--client", *client_only, "Do not ask the coordinator");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunVersion(*client_only, *options); };
  });
}

}  // namespace mt::client
