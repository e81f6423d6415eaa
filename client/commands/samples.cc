// `mtctl samples`: what a job's evaluations have written behind its prompts
// (training.eval.prompts), from the history.
#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "client/commands/history.h"
#include "client/output/metric_text.h"
#include "client/output/render.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct SamplesArgs {
  HistoryArgs history;
  int64_t step = 0;  // 0: the newest
  bool all = false;
};

// Whether the answer is one of samples. A coordinator that does not know what was asked for answers
// with steps, and with evaluations that have none.
bool IsOfSamples(const v1::History& history) {
  return history.steps().empty() &&
         std::all_of(history.evals().begin(), history.evals().end(),
                     [](const v1::EvalRecord& eval) { return eval.samples_size() > 0; });
}

// Why there is nothing to show, with what to do.
Status Nothing(const SamplesArgs& args, const v1::Job& job) {
  const auto& eval = job.spec().training().eval();
  if (eval.prompts_size() == 0) {
    return base::NotFound(
        "job '{}' writes no samples: its training.eval.prompts is empty; to read a checkpoint of "
        "it, mtctl generate {}",
        job.name(), args.history.job);
  }
  if (args.step > 0) {
    return base::NotFound(
        "no samples of step {} are in the history of job '{}'; all there are: "
        "mtctl samples {} --all",
        args.step, job.name(), args.history.job);
  }
  return base::NotFound("job '{}' has not been evaluated yet; it is after every {} steps",
                        job.name(), eval.every_iters());
}

ExitCode RunSamples(SamplesArgs args, const GlobalOptions& options) {
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  if (const Status found = FindRun(**api, &args.history, options); !found.ok())
    return Complain(found);
  args.history.from_step = args.history.to_step = args.step;
  v1::QueryHistoryRequest request = HistoryRequest(args.history, options);
  request.set_samples(true);
  auto history = (*api)->QueryHistory(request);
  if (!history.ok()) return Complain(history.status());
  if (!IsOfSamples(*history)) {
    return Complain(base::Error(absl::StatusCode::kUnimplemented,
                                "the coordinator does not know samples: is it of an older version "
                                "(mtctl version)?"));
  }
  auto& evals = *history->mutable_evals();
  if (evals.empty()) {
    v1::GetJobRequest of_this;
    of_this.mutable_job()->set_uid(args.history.uid);
    const auto job = (*api)->GetJob(of_this);
    return Complain(job.ok() ? Nothing(args, *job) : job.status());
  }
  if (!args.all && args.step == 0) evals.DeleteSubrange(0, evals.size() - 1);
  std::string text;
  View view{.message = &*history, .items = "evals"};
  for (const v1::EvalRecord& eval : evals) {
    text += SamplesText(eval);
    view.names.push_back(std::to_string(eval.step()));
  }
  return IsTable(options.output) ? PrintText(text) : Print(view, options);
}

}  // namespace

void AddSamples(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "samples", "What a job's newest evaluation wrote behind its prompts (training.eval.prompts)");
  auto args = std::make_shared<SamplesArgs>();
  command->add_option("job", args->history.job, "Name or uid")->required();
  auto* step = command->add_option("--step", args->step, "Of the evaluation at this step instead")
                   ->check(CLI::PositiveNumber);
  command->add_flag("--all", args->all, "Of all evaluations, the oldest first")->excludes(step);
  command->callback([=] { *context.run = [=] { return RunSamples(*args, *context.options); }; });
}

}  // namespace mt::client
