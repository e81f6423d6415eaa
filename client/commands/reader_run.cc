// The job is asked for before it is submitted, so that a full cluster gets no job that nobody
// wants; what it has written is asked for again from the first byte that is missing, whatever broke
// on the way.
#include "client/commands/reader_run.h"

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include <CLI/CLI.hpp>

#include "client/commands/checkpoint_place.h"
#include "client/commands/in_job.h"
#include "client/commands/job_file.h"
#include "client/commands/no_slot.h"
#include "client/commands/output_reader.h"
#include "client/commands/run_job.h"
#include "client/output/json.h"
#include "client/session/held_job.h"
#include "client/session/interrupt.h"
#include "common/base/ids.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What has ended a moment ago may still give its slot back: so long a slot is looked for.
constexpr milliseconds kLookForSlot{1'500};
constexpr milliseconds kLookAgain{250};
// How often the job is looked at while it writes nothing.
constexpr milliseconds kLookAtJob{100};
// How long the coordinator may be away.
constexpr std::chrono::minutes kReaderPatience{5};
// How often, behind the job's end, the node that has its text is asked for it: for 10 s, without
// the time in which the coordinator is away.
constexpr int kLooksForText = 100;

void SayLine(const std::string& line) {
  std::fprintf(stderr, "mtctl: %s\n", base::CleanLine(line).c_str());
}

// Its ranks were lost (P7): it would begin anew.
bool HasLostRanks(const v1::Job& job) { return job.state() == v1::PAUSED_RELEASED; }

bool IsOver(const v1::Job& job) {
  return job.state() == v1::SUCCEEDED || job.state() == v1::FAILED ||
         job.state() == v1::CANCELLED || HasLostRanks(job);
}

// JSON stays the same JSON. Text is without control characters as the job writes it; on a terminal
// that is not believed.
OutputReader::Clean CleanFor(const GlobalOptions& options) {
  if (!IsTable(options.output)) return &CleanJson;
  return ::isatty(STDOUT_FILENO) == 1 ? &base::CleanText : nullptr;
}

bool MayWrite(const v1::Job& job) {
  return job.state() == v1::RUNNING || job.state() == v1::STOPPING;
}

// One job from its submission to its end.
class ReaderRun {
 public:
  ReaderRun(const Api& api, const ReaderVerb& verb, const GlobalOptions& options,
            bool writes_in_job)
      : api_(api), verb_(verb), options_(options), writes_in_job_(writes_in_job) {}

  ExitCode Run(const v1::JobSpec& spec);

 private:
  // kExitOk: the job may be submitted.
  ExitCode AskForSlot(const v1::JobSpec& spec);
  void SayNoSlot(const v1::WhoHoldsResponse& answer) const;
  Status ToEnd(OutputReader* output);
  ExitCode End(const OutputReader& output) const;
  ExitCode Interrupted(const OutputReader& output) const;
  void SayWaiting();
  // "" or a complaint.
  std::string Cancel(const std::string& reason) const;

  const Api& api_;
  const ReaderVerb& verb_;
  const GlobalOptions& options_;
  const bool writes_in_job_;  // what is to be read could be had by --in-job
  StreamStopper stopper_;
  v1::Job job_;
  std::string waits_for_;  // as it was said
};

void ReaderRun::SayNoSlot(const v1::WhoHoldsResponse& answer) const {
  for (const std::string& line : HolderLines(answer, options_.job_namespace))
    std::fprintf(stderr, "  %s\n", base::CleanLine(line).c_str());
}

ExitCode ReaderRun::AskForSlot(const v1::JobSpec& spec) {
  v1::WhoHoldsRequest request;
  *request.mutable_spec() = spec;
  const auto until = steady_clock::now() + kLookForSlot;
  for (;;) {
    const auto answer = OutputsApi(api_).WhoHolds(request, &stopper_);
    if (InterruptScope::Interrupted()) return kExitInterrupted;
    if (!answer.ok()) return Complain(answer.status());
    if (answer->starts()) return kExitOk;
    if (verb_.wait) {
      waits_for_ = answer->why();
      SayLine("waiting: " + waits_for_);
      SayNoSlot(*answer);
      return kExitOk;
    }
    if (steady_clock::now() + kLookAgain > until) {
      SayLine("no slot is free now, and nothing was submitted: " + answer->why());
      SayNoSlot(*answer);
      SayLine("add " + SlotAdvice(*answer, writes_in_job_));
      return kExitError;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

ExitCode ReaderRun::Run(const v1::JobSpec& spec) {
  std::optional<InterruptScope> scope(std::in_place, &stopper_);
  const ExitCode asked = AskForSlot(spec);
  if (asked != kExitOk) return asked;
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(base::NewUid());
  request.set_held(!verb_.detach);
  const auto submitted = api_.Submit(request);
  if (!submitted.ok()) return Complain(submitted.status());
  job_ = submitted->job();
  std::optional<HeldJob> held;
  if (verb_.detach) {
    SayLine(
        fmt::format("job {} goes on without this terminal; its text again: mtctl logs {} --text{}",
                    job_.name(), job_.name(), PlaceFlags(options_)));
  } else {
    held.emplace(api_, job_.uid());
  }
  v1::JobRef ref;
  ref.set_uid(job_.uid());
  OutputReader output(api_, ref, CleanFor(options_));
  const Status status = ToEnd(&output);
  if (InterruptScope::Interrupted()) {
    scope.reset();  // where the coordinator does not answer, another Ctrl-C ends this program
    return Interrupted(output);
  }
  if (output.in_line()) std::fputs("\n", stdout);
  std::fflush(stdout);
  if (!output.write_error().ok()) {
    if (!verb_.detach) Cancel("nobody reads its text");
    return Complain(output.write_error(), kExitIo);
  }
  if (!status.ok()) return Complain(status);
  return End(output);
}

void ReaderRun::SayWaiting() {
  if (job_.state() != v1::QUEUED || job_.message().empty() || job_.message() == waits_for_) return;
  waits_for_ = job_.message();
  SayLine("waiting: " + waits_for_);
}

Status ReaderRun::ToEnd(OutputReader* output) {
  v1::GetJobRequest request;
  request.mutable_job()->set_uid(job_.uid());
  auto heard = steady_clock::now();
  int looks = 0;  // since the job is over
  const auto is_away = [&heard](const Status& status) {
    return ExitCodeOf(status) == kExitConnection && steady_clock::now() - heard < kReaderPatience;
  };
  while (!InterruptScope::Interrupted()) {
    auto job = api_.GetJob(request, &stopper_);
    if (job.ok()) {
      heard = steady_clock::now();
      job_ = *std::move(job);
      if (IsOver(job_)) {
        Status rest = output->Read(/*follow=*/false, &stopper_);
        if (!output->write_error().ok()) return rest;
        if (job_.state() != v1::SUCCEEDED) return OkStatus();  // perhaps it never wrote
        const bool is_whole = rest.ok() && output->error().empty();
        if (is_whole || ++looks == kLooksForText) return rest;
      } else if (MayWrite(job_)) {
        // What breaks the stream shows in the job's state, or passes.
        (void)output->Read(/*follow=*/true, &stopper_);
        if (!output->write_error().ok()) return output->write_error();
      } else {
        SayWaiting();
      }
    } else if (!is_away(job.status())) {
      return job.status();
    }
    std::this_thread::sleep_for(kLookAtJob);
  }
  return base::Error(absl::StatusCode::kCancelled, "interrupted");
}

ExitCode ReaderRun::End(const OutputReader& output) const {
  if (job_.state() == v1::SUCCEEDED) {
    if (!output.error().empty()) {
      return Complain(
          base::Internal("the text of job {} cannot be read: {}", job_.name(), output.error()),
          kExitIo);
    }
    if (IsTable(options_.output))
      std::fprintf(stderr, "%s\n", base::CleanLine(job_.message()).c_str());
    return kExitOk;
  }
  if (HasLostRanks(job_) && !verb_.detach) Cancel("its ranks were lost");
  return Complain(base::Internal("job {} is {}: {}", job_.name(), v1::JobState_Name(job_.state()),
                                 job_.message()),
                  kExitJobFailed);
}

ExitCode ReaderRun::Interrupted(const OutputReader& output) const {
  if (output.in_line()) std::fputs("\n", stdout);
  std::fflush(stdout);
  if (verb_.detach) {
    SayLine(fmt::format("job {} goes on", job_.name()));
    return kExitInterrupted;
  }
  const std::string why = Cancel("Ctrl-C");
  SayLine(why.empty() ? fmt::format("job {} is cancelled", job_.name())
                      : fmt::format("job {} ends by itself: {}", job_.name(), why));
  return kExitInterrupted;
}

std::string ReaderRun::Cancel(const std::string& reason) const {
  v1::CancelRequest request;
  request.mutable_job()->set_uid(job_.uid());
  request.set_reason(reason);
  request.set_request_id(base::NewUid());
  return std::string(base::Message(api_.Cancel(request).status()));
}

ExitCode RunOnCluster(const JobText& named, const ReaderVerb& verb, const ReaderWays& ways,
                      const GlobalOptions& options) {
  const auto api = ConnectApi(options);
  if (!api.ok()) {
    return Complain(base::Error(api.status().code(),
                                "no path is named {}, and no job can be looked up: {}", named.job,
                                base::Message(api.status())));
  }
  const auto job = FindJobWithRun(**api, named.job, options);
  if (!job.ok()) return Complain(job.status());
  auto spec =
      ways.make_job({.job = &*job,
                     .what = named.what,
                     .device_given = verb.device_given,
                     .threads_given = verb.threads_given,
                     .data_root = verb.data_root.empty() ? DevDataRoot(options) : verb.data_root});
  if (!spec.ok()) return Complain(spec.status());
  // "generate-1f0c9a52"
  spec->set_name(ways.flag.substr(2) + "-" + base::NewUid().substr(0, 8));
  spec->set_namespace_(options.job_namespace);
  SetDevPolicy(options, &*spec);
  // With a step or a tag other weights are meant than the job has now.
  const bool newest = !spec->read().has_step() && !spec->read().has_tag() && named.what.empty();
  const bool in_job = ways.has_in_job && newest && WritesInJob(*job);
  return ReaderRun(**api, verb, options, in_job).Run(*spec);
}

}  // namespace

void AddReaderVerb(CLI::App* command, ReaderVerb* verb) {
  AddReaderTarget(command, &verb->target);
  auto* const local = command->add_flag(
      "--local", verb->local, "This machine reads the checkpoint: no job, no slot, no worker");
  command
      ->add_flag("--wait", verb->wait,
                 "Where no slot is free: submit the job anyway and wait for one")
      ->excludes(local);
  command
      ->add_flag("--detach", verb->detach,
                 "The job goes on where this program ends; else Ctrl-C cancels it, and a terminal "
                 "that is gone after 10 s")
      ->excludes(local);
  command
      ->add_option("--data-root", verb->data_root,
                   "With a job: the nodes' data root as this machine has it, below which files lie "
                   "[that of mtctl dev up]")
      ->excludes(local);
  command->get_option("--device")
      ->description(
          "Kind of slot: cpu or gpu [gpu where a node has any]; of a folder or with "
          "--local: cpu, or this machine's first GPU [cpu]");
  for (const char* const file : {"--tokenizer-file", "--vocab", "--merges"}) {
    CLI::Option* const option = command->get_option(file);
    option->description(option->get_description() + "; for a job below the data root");
  }
  command->get_option("--threads")
      ->description("CPU threads [the slot's share of its node; of a folder or with --local: 1]");
}

void NoteGiven(const CLI::App& command, ReaderVerb* verb) {
  verb->device_given = command.count("--device") > 0;
  verb->threads_given = command.count("--threads") > 0;
}

ExitCode RunReaderVerb(const ReaderVerb& verb, const ReaderWays& ways,
                       const GlobalOptions& options) {
  std::optional<JobText> named;
  if (!verb.local && verb.target.directory.empty()) named = JobNamedBy(verb.target.job);
  if (named) return RunOnCluster(*named, verb, ways, options);
  if (verb.wait || verb.detach || !verb.data_root.empty()) {
    return Complain(base::InvalidArgument("--wait, --detach and --data-root are of a job that "
                                          "reads; a folder is read on this machine"),
                    kExitUsage);
  }
  return RunReader(verb.target, ways.flag, ways.arguments, options);
}

}  // namespace mt::client
