// `mtctl admin`: what operators do to the coordinator itself.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/verb.h"
#include "client/session/operator_api.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct RestoreArgs {
  std::string reason;
  bool yes = false;
};

ExitCode DeclareRestore(const RestoreArgs& args, const GlobalOptions& options) {
  ExitCode code = kExitOk;
  if (!Confirmed(args.yes,
                 "Declare that this coordinator's store is the one to go on with? Every other "
                 "coordinator of the cluster is disobeyed from then on.",
                 &code))
    return code;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::DeclareRestoreRequest request;
  request.set_reason(args.reason);
  const auto server = OperatorApi(api->get()).DeclareRestore(request);
  if (!server.ok()) return Complain(server.status());
  if (IsTable(options.output)) {
    return PrintText(fmt::format(
        "restore declared: term {} of cluster {} begins; jobs are placed once every node has "
        "registered or is declared dead (mtctl get nodes, mtctl describe JOB)\n",
        server->term(), server->cluster_id()));
  }
  return Print({.message = &*server, .names = {server->cluster_id()}}, options);
}

void AddRestore(CLI::App* command, const CommandContext& context) {
  CLI::App* restore = command->add_subcommand(
      "restore", "Say that the coordinator's store was restored, and is the one to obey");
  auto args = std::make_shared<RestoreArgs>();
  restore->add_option("--reason", args->reason, "Kept with the event");
  AddYesFlag(restore, &args->yes);
  restore->callback([=, options = context.options, run = context.run] {
    *run = [=] { return DeclareRestore(*args, *options); };
  });
}

}  // namespace

void AddAdmin(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("admin", "What operators do to the coordinator")
                          ->require_subcommand(1);
  AddRestore(command, context);
}

}  // namespace mt::client
