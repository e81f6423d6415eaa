// `mtctl update`: changes those fields of a job that may change while it lives.
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "common/base/ids.h"
#include "common/spec/parse.h"
#include "common/spec/print.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct UpdateArgs {
  std::string job;
  std::vector<std::string> sets, labels, removed_labels, cleared;
  std::string etag, reason, request_id;
};

// Adds "path=value" to the request's changes, or to its list of cleared fields where the value
// unsets the field (none, auto, null).
spec::Faults ApplySet(const std::string& text, v1::UpdateJobRequest* request) {
  v1::JobSpec one;
  spec::Faults faults = spec::ParseJob("{}", {text}, &one);
  if (!faults.empty()) return faults;
  if (spec::ToJson(one) == "{}") {
    request->add_clear(text.substr(0, text.find('=')));
  } else {
    request->mutable_changes()->MergeFrom(one);
  }
  return {};
}

StatusOr<v1::UpdateJobRequest> MakeRequest(const UpdateArgs& args, const GlobalOptions& options) {
  v1::UpdateJobRequest request;
  *request.mutable_job() = MakeJobRequest(options, args.job).job();
  request.set_etag(args.etag);
  request.set_reason(args.reason);
  request.set_request_id(args.request_id.empty() ? base::NewUid() : args.request_id);
  spec::Faults faults;
  for (const std::string& set : args.sets) {
    const spec::Faults found = ApplySet(set, &request);
    faults.insert(faults.end(), found.begin(), found.end());
  }
  RETURN_IF_ERROR(spec::ToStatus(faults));
  for (const std::string& label : args.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return base::InvalidArgument("--label {}: expected KEY=VALUE", label);
    (*request.mutable_changes()->mutable_labels())[label.substr(0, equals)] =
        label.substr(equals + 1);
  }
  for (const std::string& label : args.removed_labels) request.add_remove_labels(label);
  for (const std::string& path : args.cleared) request.add_clear(path);
  if (!request.has_changes() && request.remove_labels().empty() && request.clear().empty())
    return base::InvalidArgument(
        "nothing to change: pass --set, --label, --remove-label or --clear");
  return request;
}

ExitCode RunUpdate(const UpdateArgs& args, const GlobalOptions& options) {
  const auto request = MakeRequest(args, options);
  if (!request.ok()) return Complain(request.status());
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  const auto job = (*api)->Update(*request);
  if (!job.ok()) return Complain(job.status());
  if (IsTable(options.output))
    return PrintText(fmt::format("job {} updated (etag {})\n", job->name(), job->etag()));
  return Print({.message = &*job, .names = {job->name()}}, options);
}

}  // namespace

void AddUpdate(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "update", "Change a live job: priority, labels, log and checkpoint intervals, deadline");
  auto args = std::make_shared<UpdateArgs>();
  command->add_option("job", args->job, "Name or uid")->required();
  command->add_option("--set", args->sets, "A field: --set checkpoint.every_iters=100")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--label", args->labels, "Add or replace a label: --label team=nlp")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--remove-label", args->removed_labels, "Remove a label by its key")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--clear", args->cleared, "Unset a field: --clear resilience.deadline")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--etag", args->etag, "Only if the job is still that of `describe -o json`");
  command->add_option("--reason", args->reason, "Kept with the event");
  command->add_option("--request-id", args->request_id, "Repeat of an earlier request");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunUpdate(*args, *options); };
  });
}

}  // namespace mt::client
