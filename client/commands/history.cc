// Flags, parsing and request of a history range.
#include "client/commands/history.h"

#include <charconv>

#include <CLI/CLI.hpp>

#include "client/commands/run_job.h"
#include "common/spec/number.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

// Parses a positive number; leaves *out for an empty text, which is an open end.
bool ParseStepBound(std::string_view text, int64_t* out) {
  *out = 0;
  if (text.empty()) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out > 0;
}

}  // namespace

bool ParseSteps(const std::string& text, int64_t* from, int64_t* to) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    if (!ParseStepBound(text, from) || *from == 0) return false;
    *to = *from;
    return true;
  }
  const std::string_view view = text;
  return ParseStepBound(view.substr(0, colon), from) &&
         ParseStepBound(view.substr(colon + 1), to) && (*to == 0 || *from <= *to);
}

RangeOptions AddHistoryFlags(CLI::App* command, HistoryArgs* args) {
  command->add_option("job", args->job, "Name or uid")->required();
  auto* steps = command->add_option_function<std::string>(
      "--steps",
      [args](const std::string& text) {
        if (!ParseSteps(text, &args->from_step, &args->to_step))
          throw CLI::ValidationError("--steps",
                                     "expected FROM:TO, FROM:, :TO or one step, got " + text);
      },
      "Only these: FROM:TO; either end may be left open");
  auto* since = command->add_option_function<std::string>(
      "--since",
      [args](const std::string& text) {
        const auto duration = spec::ParseDuration(text);
        if (!duration || *duration <= 0)
          throw CLI::ValidationError("--since",
                                     "expected a duration like 90s, 10m or 2h, got " + text);
        args->since_ms = *duration;
      },
      "Only the last while: 10m");
  since->excludes(steps);
  auto* points =
      command->add_option("--points", args->points, "At most about so many, by thinning");
  points->check(CLI::Range(1, 10000));
  auto* attempt = command->add_option(
      "--attempt", args->attempt,
      "Of a run that was placed or submitted again: this attempt alone, 1 the first");
  attempt->check(CLI::PositiveNumber);
  return {.steps = steps, .since = since, .points = points, .attempt = attempt};
}

v1::QueryHistoryRequest HistoryRequest(const HistoryArgs& args, const GlobalOptions& options) {
  v1::QueryHistoryRequest request;
  if (args.uid.empty()) {
    *request.mutable_job() = MakeJobRequest(options, args.job).job();
  } else {
    request.mutable_job()->set_uid(args.uid);
  }
  request.set_attempt(args.attempt);
  request.set_from_step(args.from_step);
  request.set_to_step(args.to_step);
  if (args.since_ms > 0) request.set_since_us(NowMicros() - args.since_ms * 1000);
  request.set_points(args.points);
  for (const std::string& name : args.names) request.add_names(name);
  return request;
}

Status FindRun(const Api& api, HistoryArgs* args, const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, FindJobWithRun(api, args->job, options));
  args->uid = job.uid();
  return OkStatus();
}

StatusOr<v1::History> FetchHistory(const Api& api, const HistoryArgs& args,
                                   const GlobalOptions& options) {
  return api.QueryHistory(HistoryRequest(args, options));
}

}  // namespace mt::client
