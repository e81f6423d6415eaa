// The texts come as one answer, when all are there: a step waits for them.
#include "client/commands/in_job.h"

#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "client/commands/reader_spec.h"
#include "client/commands/verb.h"
#include "client/session/operations.h"
#include "common/base/ids.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"
#include "worker/decode/generate_flags.h"

namespace mt::client {
namespace {

// As worker/decode/text_printer.h writes them.
std::string InJobText(const v1::Generate& asked, const v1::DecodedTexts& decoded) {
  std::string out;
  for (const v1::DecodedText& one : decoded.texts()) {
    std::string heading;
    if (asked.prompts_size() > 1) heading = fmt::format("prompt {}", one.prompt() + 1);
    if (asked.samples() > 1) {
      heading += fmt::format("{}sample {}", heading.empty() ? "" : ", ", one.sample() + 1);
    }
    if (!heading.empty()) out += fmt::format("== {}\n", heading);
    if (one.prompt() >= 0 && one.prompt() < asked.prompts_size())
      out += base::CleanText(asked.prompts(one.prompt()));
    out += base::CleanText(one.text()) + "\n";
  }
  return out;
}

// What was written, and what of it ended before its time.
std::string InJobSummary(const std::string& job, const v1::Operation& operation) {
  int positions = 0;
  int late = 0;
  int cut = 0;
  for (const v1::DecodedText& one : operation.decoded().texts()) {
    positions += one.finish() == "positions" ? 1 : 0;
    late += one.finish() == "time" ? 1 : 0;
    cut += one.finish() == "cut" ? 1 : 0;
  }
  std::string line = fmt::format("{}: {}", job, operation.result());
  if (positions > 0) {
    line += fmt::format(
        "; {} ended where the job's memory for texts does "
        "(training.eval.decode_tokens)",
        positions);
  }
  if (late > 0) line += fmt::format("; {} were not done in the time that a step waits", late);
  if (cut > 0) line += fmt::format("; {} are longer than what is kept of a text", cut);
  return line;
}

}  // namespace

bool WritesInJob(const v1::Job& job) {
  return job.state() == v1::RUNNING && job.spec().training().eval().decode_tokens() > 0;
}

ExitCode GenerateInJob(const std::string& job, const decode::GenerateFlags& flags,
                       const GlobalOptions& options) {
  if (job.find(':') != std::string::npos) {
    return Complain(base::InvalidArgument("{}: with --in-job the weights are those of the step "
                                          "that the job is at; name the job alone",
                                          job),
                    kExitUsage);
  }
  v1::DecodeRequest request;
  auto asked = GenerateOf(flags);
  if (!asked.ok()) return Complain(asked.status());
  *request.mutable_generate() = *std::move(asked);
  FillJobRef(options, job, request.mutable_job());
  request.set_request_id(base::NewUid());
  const auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  auto operation = OutputsApi(**api).Decode(request);
  if (!operation.ok()) return Complain(operation.status());
  const ExitCode waited = WaitDone(**api, std::nullopt, &*operation);
  if (waited != kExitOk) return waited;
  const bool human = IsTable(options.output);
  if (operation->has_error() && human) {
    std::fprintf(stderr, "mtctl: generate --in-job of %s failed: %s\n",
                 base::CleanLine(job).c_str(),
                 base::CleanLine(operation->error().message()).c_str());
    return ExitCodeOf(*operation);
  }
  if (operation->decoded().left_out()) {
    return Complain(base::Error(absl::StatusCode::kAborted,
                                "the texts of {} are not kept any more: a later generate "
                                "--in-job of the job has written",
                                operation->name()));
  }
  if (!human) {
    const ExitCode told = Print({.message = &*operation, .names = {operation->name()}}, options);
    return told != kExitOk ? told : ExitCodeOf(*operation);
  }
  const ExitCode printed = PrintText(InJobText(request.generate(), operation->decoded()));
  if (printed == kExitOk)
    std::fprintf(stderr, "%s\n", base::CleanLine(InJobSummary(job, *operation)).c_str());
  return printed;
}

}  // namespace mt::client
