// `mtctl node`: what operators do to nodes. `declare-dead` asserts that nothing runs on a lost one
// any more, so that its jobs can end; `delete` forgets one that is gone for good; `readmit` lets a
// host that was installed anew have its node's name again; `kill-orphan` ends ranks that no job
// known here owns.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/verb.h"
#include "client/session/operator_api.h"
#include "common/control/numbers.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct NodeArgs {
  std::string node;
  std::string job;  // uid, of kill-orphan
  std::string reason;
  bool yes = false;
};

ExitCode DeclareDead(const NodeArgs& args, const GlobalOptions& options) {
  ExitCode code = kExitOk;
  const std::string question = fmt::format(
      "Declare node {} dead? Only when nothing runs there any more: its jobs end, its slots are "
      "given "
      "to others.",
      args.node);
  if (!Confirmed(args.yes, question, &code)) return code;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::DeclareDeadRequest request;
  request.set_node(args.node);
  request.set_reason(args.reason);
  const auto node = (*api)->nodes().DeclareDead(request);
  if (!node.ok()) return Complain(node.status());
  if (IsTable(options.output)) return PrintText(fmt::format("node {} declared dead\n", args.node));
  return Print({.message = &*node, .names = {node->name()}}, options);
}

ExitCode Delete(const NodeArgs& args, const GlobalOptions& options) {
  ExitCode code = kExitOk;
  if (!Confirmed(args.yes, fmt::format("Forget node {}?", args.node), &code)) return code;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::DeleteNodeRequest request;
  request.set_node(args.node);
  request.set_reason(args.reason);
  const Status deleted = OperatorApi(api->get()).DeleteNode(request);
  if (!deleted.ok()) return Complain(deleted);
  if (options.output == OutputFormat::kName) return PrintText(args.node + "\n");
  if (IsTable(options.output)) return PrintText(fmt::format("node {} deleted\n", args.node));
  return PrintText(
      RenderTree(nlohmann::ordered_json{{"done", "deleted"}, {"node", args.node}}, options.output));
}

using NodeVerb = ExitCode (*)(const NodeArgs&, const GlobalOptions&);

void AddNodeVerb(const CommandContext& context, CLI::App* verb, NodeVerb run_verb) {
  auto args = std::make_shared<NodeArgs>();
  verb->add_option("node", args->node, "Its name")->required();
  verb->add_option("--reason", args->reason, "Kept with the event");
  AddYesFlag(verb, &args->yes);
  verb->callback([=, options = context.options, run = context.run] {
    *run = [=] { return run_verb(*args, *options); };
  });
}

ExitCode Readmit(const NodeArgs& args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::ReadmitRequest request;
  request.set_node(args.node);
  request.set_reason(args.reason);
  const auto node = (*api)->nodes().Readmit(request);
  if (!node.ok()) return Complain(node.status());
  if (IsTable(options.output)) {
    return PrintText(fmt::format(
        "node {}: the next worker of this name is let in without its secret, once its "
        "former holder was silent for {} s (or as mt-coordinator --suspect-after says)\n",
        args.node,
        std::chrono::duration_cast<control::seconds>(control::kWorkerSuspectAfter).count()));
  }
  return Print({.message = &*node, .names = {node->name()}}, options);
}

void AddReadmit(CLI::App* parent, const CommandContext& context) {
  CLI::App* readmit = parent->add_subcommand(
      "readmit", "Let a host that was installed anew have the node's name again");
  auto args = std::make_shared<NodeArgs>();
  readmit->add_option("node", args->node, "Its name")->required();
  readmit->add_option("--reason", args->reason, "Kept with the event");
  readmit->callback([=, options = context.options, run = context.run] {
    *run = [=] { return Readmit(*args, *options); };
  });
}

ExitCode KillOrphan(const NodeArgs& args, const GlobalOptions& options) {
  ExitCode code = kExitOk;
  const std::string question = fmt::format(
      "End the orphaned ranks of job {} on node {}? What they trained since their last checkpoint "
      "is lost.",
      args.job, args.node);
  if (!Confirmed(args.yes, question, &code)) return code;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::KillOrphanRequest request;
  request.set_node(args.node);
  request.set_job_uid(args.job);
  request.set_reason(args.reason);
  const auto killed = OrphansApi(**api).Kill(request);
  if (!killed.ok()) return Complain(killed.status());
  if (IsTable(options.output))
    return PrintText(fmt::format("{} orphaned ranks are being ended\n", killed->ranks()));
  return Print({.message = &*killed, .names = {args.job}}, options);
}

}  // namespace

void AddNode(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("node", "What operators do to nodes")->require_subcommand(1);
  AddNodeVerb(context,
              command->add_subcommand("declare-dead",
                                      "Say that nothing runs on a lost node: ends its ranks' jobs"),
              DeclareDead);
  AddNodeVerb(
      context,
      command->add_subcommand("delete", "Forget a node that is lost or dead and holds nothing"),
      Delete);
  AddReadmit(command, context);
  CLI::App* orphan = command->add_subcommand(
      "kill-orphan", "End ranks of a job that the coordinator does not know (get orphans)");
  auto args = std::make_shared<NodeArgs>();
  orphan->add_option("node", args->node, "Its name")->required();
  orphan->add_option("job", args->job, "Uid of the job")->required();
  orphan->add_option("--reason", args->reason, "Kept with the event");
  AddYesFlag(orphan, &args->yes);
  orphan->callback([=, options = context.options, run = context.run] {
    *run = [=] { return KillOrphan(*args, *options); };
  });
}

}  // namespace mt::client
