// `mtctl profile`: asks for a trace of the next steps, waits until every rank has made its part,
// fetches it and writes it as a Chrome trace.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/verb.h"
#include "client/output/format.h"
#include "client/session/interrupt.h"
#include "client/session/operations.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/plain_text.h"
#include "common/control/numbers.h"
#include "common/report/chrome_trace.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/trace.pb.h"

namespace mt::client {
namespace {

struct ProfileArgs {
  std::string job;  // or the operation of a profile that was asked for before
  int steps = 3;
  std::string file;
  std::string reason;
  double timeout_s = 0;  // 0: as long as it takes
};

// Before anything is asked for: whether the trace can be written.
Status CheckFile(const std::string& file) {
  std::error_code ignored;
  if (file.empty()) return base::InvalidArgument("-o: is empty; name a file");
  if (std::filesystem::is_directory(file, ignored))
    return base::InvalidArgument("-o {}: is a folder; name a file in it", file);
  // It is replaced: a device or a pipe would be gone.
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored))
    return base::InvalidArgument("-o {}: is no regular file; name another", file);
  std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (folder.empty()) folder = ".";
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return OkStatus();
  return base::Annotate(base::ErrnoError(errno, "write to " + folder.string()),
                        fmt::format("-o {}", file));
}

// A user of other verbs may mean the format of the answer.
bool NamesAFormat(const std::string& file) {
  constexpr std::string_view kFormats[] = {"table", "wide", "json", "jsonl",
                                           "yaml",  "name", "none"};
  return std::ranges::find(kFormats, file) != std::end(kFormats);
}

StatusOr<v1::Operation> Ask(const Api& api, const ProfileArgs& args, const GlobalOptions& options) {
  if (IsOperationName(args.job)) {
    v1::GetOperationRequest request;
    request.set_name(args.job);
    return api.GetOperation(request);
  }
  v1::ProfileRequest request;
  FillJobRef(options, args.job, request.mutable_job());
  request.set_steps(args.steps);
  request.set_reason(args.reason);
  request.set_request_id(base::NewUid());
  return ProfilesApi(api).Begin(request);
}

// What went wrong after a profile had succeeded: it need not be made again.
ExitCode ComplainOfFetch(const Status& status, const v1::Operation& operation, ExitCode code) {
  Complain(status, code);
  std::fprintf(stderr, "to try again: mtctl profile %s -o FILE\n",
               base::CleanLine(operation.name()).c_str());
  return code;
}

// The trace of a profile that is done; kCancelled after Ctrl-C.
StatusOr<v1::JobTrace> Fetch(const Api& api, const v1::Operation& operation) {
  v1::ReadTraceRequest request;
  request.set_operation(operation.name());
  std::string bytes;
  std::string error;
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  RETURN_IF_ERROR(ProfilesApi(api).ReadTrace(request, &stopper, [&](const v1::LogChunk& chunk) {
    if (chunk.dropped() > 0) error = "parts of it were left out, this program read too slowly";
    if (!chunk.error().empty()) error = chunk.error();
    bytes += chunk.data();
    return error.empty();
  }));
  if (!error.empty()) return base::Unavailable("the trace did not come: {}", error);
  v1::JobTrace trace;
  const v1::StepProfile& profile = operation.profile();
  if (static_cast<int64_t>(bytes.size()) != profile.bytes() || !trace.ParseFromString(bytes) ||
      trace.ranks().empty() || trace.ranks(0).first_step() != profile.first_step()) {
    return base::DataLoss(
        "the trace that rank 0 has left is not that of {}: a later profile of the job has taken "
        "its place",
        operation.name());
  }
  return trace;
}

ExitCode Report(const v1::Operation& operation, const v1::JobTrace& trace, const ProfileArgs& args,
                const GlobalOptions& options) {
  if (!IsTable(options.output))
    return Print({.message = &operation, .names = {operation.name()}}, options);
  const v1::StepProfile& profile = operation.profile();
  std::string text =
      fmt::format("steps {} to {} of {} rank{}: {}\n", profile.first_step(), profile.last_step(),
                  trace.ranks_size(), trace.ranks_size() == 1 ? "" : "s", args.file);
  if (!profile.note().empty()) text += base::CleanLine(profile.note()) + "\n";
  int64_t dropped = 0;
  for (const v1::RankTrace& rank : trace.ranks()) dropped += rank.dropped();
  if (dropped > 0)
    text += fmt::format("{} spans are lacking: there was no room for them; ask for fewer steps\n",
                        dropped);
  return PrintText(text + "look at it: https://ui.perfetto.dev or chrome://tracing\n");
}

ExitCode RunProfile(const ProfileArgs& args, const GlobalOptions& options) {
  if (NamesAFormat(args.file)) {
    return Complain(
        base::InvalidArgument("-o of profile is the trace's file (./{0} for one of that name); how "
                              "the answer is printed stands before it: mtctl -o {0} profile",
                              args.file),
        kExitUsage);
  }
  const Status writable = CheckFile(args.file);
  if (!writable.ok()) return Complain(writable, kExitIo);
  const auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  auto operation = Ask(**api, args, options);
  if (!operation.ok()) return Complain(operation.status());
  if (operation->verb() != "profile") {
    return Complain(base::InvalidArgument("{} is no profile, but a {}", args.job,
                                          base::CleanLine(operation->verb())),
                    kExitUsage);
  }
  if (!operation->done()) {
    std::optional<std::chrono::milliseconds> limit;
    if (args.timeout_s > 0) limit = std::chrono::milliseconds(std::llround(args.timeout_s * 1000));
    const ExitCode waited = WaitDone(**api, limit, &*operation);
    if (waited != kExitOk) {
      std::fprintf(stderr, "its trace, once it is done: mtctl profile %s -o %s\n",
                   base::CleanLine(operation->name()).c_str(), args.file.c_str());
      return waited;
    }
  }
  if (operation->has_error()) {
    std::fprintf(stderr, "mtctl: profile of %s failed: %s\n", args.job.c_str(),
                 base::CleanLine(operation->error().message()).c_str());
    return ExitCodeOf(*operation);
  }
  const auto trace = Fetch(**api, *operation);
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  if (absl::IsDataLoss(trace.status())) return Complain(trace.status());  // for good
  if (!trace.ok()) return ComplainOfFetch(trace.status(), *operation, ExitCodeOf(trace.status()));
  const Status written = base::WriteFileAtomic(args.file, report::ChromeTrace(*trace));
  if (!written.ok()) return ComplainOfFetch(written, *operation, kExitIo);
  return Report(*operation, *trace, args, options);
}

}  // namespace

void AddProfile(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "profile",
      "Trace the next steps of a running job on every rank, into a file for Perfetto or "
      "chrome://tracing");
  auto args = std::make_shared<ProfileArgs>();
  command
      ->add_option(
          "job", args->job,
          "Name (the newest job of that name) or uid; or operations/UID: the trace of that "
          "profile")
      ->required();
  command->add_option("--steps", args->steps, "How many")
      ->check(CLI::Range(int64_t{1}, control::kMostProfileSteps))
      ->capture_default_str();
  // In front of the command, -o is how the answer is printed.
  command->add_option("-o,--output", args->file, "The file, which is written anew")->required();
  command->add_option("--reason", args->reason, "Kept with the operation and its events");
  command->add_option("--timeout", args->timeout_s, "Seconds to wait (0: as long as it takes)")
      ->check(CLI::NonNegativeNumber);
  command->callback([=] { *context.run = [=] { return RunProfile(*args, *context.options); }; });
}

}  // namespace mt::client
