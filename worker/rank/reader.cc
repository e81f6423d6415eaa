// Command lines of their own: no flag of a rank has a meaning here.
#include "worker/rank/reader.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <CLI/CLI.hpp>

#include "common/base/plain_text.h"
#include "common/control/numbers.h"
#include "common/control/rank_exit_codes.h"
#include "common/spec/job_kind.h"
#include "kernels/ops/backend.h"
#include "megatrain/v1/job.pb.h"
#include "worker/decode/generate_command.h"
#include "worker/decode/job/output_file.h"
#include "worker/decode/job/reader_job.h"
#include "worker/decode/scores/eval_command.h"
#include "worker/failure/failure.h"
#include "worker/rank/compute_device.h"
#include "worker/rank/outcome.h"
#include "worker/rank/stop_signals.h"

namespace mt::rank {
namespace {

bool Has(int argc, char** argv, const std::string& flag) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == flag || argument.starts_with(flag + "=")) return true;
  }
  return false;
}

// Returns the exit code.
int Read(const std::function<Status(const Interrupted&)>& read) {
  const Status status = ReadUntilSignal(read);
  if (status.ok()) return control::kExitDone;
  if (absl::IsCancelled(status)) return control::kExitTransient;
  std::fprintf(stderr, "mt-rank: %s\n", base::CleanText(base::Message(status)).c_str());
  return ExitCodeOf(status);
}

// True where the program goes on; else *code is how it ends.
bool Parse(CLI::App* app, int argc, char** argv, int* code) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *code = app->exit(error) == 0 ? 0 : control::kExitConfig;
    return false;
  }
  return true;
}

// One run of a reader's rank.
class ReaderRank {
 public:
  explicit ReaderRank(const ReaderRankArgs& args) : args_(args) {}

  train::TrainResult Run() {
    args_.observer->OnState(train::TrainState::kLoading, 0);
    Status status;
    try {
      status = Read();
    } catch (...) {
      status = failure::StatusOfException();
    }
    args_.observer->OnActivityEnd(train::ActivityKind::kScoring);
    train::TrainResult result;
    const bool cut = output_ != nullptr && output_->full();
    const bool ended = absl::IsCancelled(status) && (stopped_ || cut);
    if (!status.ok() && !ended) {
      result.status = std::move(status);
      return result;
    }
    Begin();
    args_.observer->OnState(train::TrainState::kExiting, 0);
    result.completed = !stopped_;
    result.message = told_;
    if (cut) result.message += fmt::format("; cut at {} bytes", output_->bytes());
    return result;
  }

 private:
  Status Read() {
    if (args_.output_file.empty()) {
      return base::FailedPrecondition(
          "the worker has no log root, and so no place for what a job of kind {} writes",
          spec::KindOf(*args_.job).name);
    }
    ASSIGN_OR_RETURN(output_,
                     decode::OutputFile::Create(args_.output_file, control::kMaxOutputBytes));
    Status read = decode::RunReaderJob(
        {.job = args_.job,
         .data_root = args_.data_root,
         .checkpoint_root = args_.checkpoint_root,
         .checkpoint_root_id = args_.checkpoint_root_id,
         .out = [this](std::string_view text) { return Write(text); },
         .on_progress = [this](const std::string& task, int64_t done,
                               int64_t all) { OnScored(task, done, all); },
         .tell = [this](std::string_view line) { told_ = line; },
         .interrupted = [this] { return IsToEnd(); },
         .make_backend = [this] { return MakeBackend(*args_.job, {.uuid = args_.gpu}); }});
    const bool whole = args_.job->read().output() == megatrain::v1::Read::OUTPUT_JSON;
    if (!whole || !output_->full() || stopped_) return read;
    return base::FailedPrecondition(
        "the JSON has more than {} bytes, which is what is kept: ask for fewer samples or tokens, "
        "or set read.output to text",
        control::kMaxOutputBytes);
  }

  Status Write(std::string_view text) {
    Status written = output_->Append(text);
    failed_ = failed_ || !written.ok();
    return written;
  }

  // Each task is an activity of its own, with a time and a rate of its own.
  void OnScored(const std::string& task, int64_t done, int64_t all) {
    if (task != task_) args_.observer->OnActivityEnd(train::ActivityKind::kScoring);
    task_ = task;
    args_.observer->OnActivity({.kind = train::ActivityKind::kScoring, .done = done, .total = all});
  }

  // False: there was none.
  bool TookCommand() {
    const auto command = args_.commands->Poll();
    if (!command.has_value()) return false;
    Take(*command);
    return true;
  }

  // Asked before each step and window, for the first time when the checkpoint is in memory.
  bool IsToEnd() {
    Begin();
    args_.observer->OnProgress(0);
    while (TookCommand()) {
    }
    return stopped_ || failed_ || output_->full();
  }

  void Begin() {
    if (std::exchange(begun_, true)) return;
    args_.observer->OnState(train::TrainState::kReady, 0);
    args_.observer->OnState(train::TrainState::kTraining, 0);
  }

  void Take(const train::Command& command) {
    train::CommandResult done{.id = command.id, .kind = command.kind};
    if (command.kind == train::CommandKind::kStopWithSave ||
        command.kind == train::CommandKind::kStopWithoutSave) {
      stopped_ = true;
    } else {
      done.error = base::FailedPrecondition("a job of kind {} makes no steps, and saves nothing",
                                            spec::KindOf(*args_.job).name);
    }
    args_.observer->OnCommandDone(done);
  }

  const ReaderRankArgs& args_;
  std::unique_ptr<decode::OutputFile> output_;
  std::string told_;
  std::string task_;  // that is scored
  bool begun_ = false;
  bool stopped_ = false;  // by a command
  bool failed_ = false;   // to write
};

constexpr const char* kPathHelp = "A directory of checkpoints, or one of them";

void TellOnStderr(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

int RunGenerate(int argc, char** argv) {
  CLI::App app("mt-rank --generate: text from a checkpoint, without daemons.");
  decode::GenerateArgs args{.out = decode::ToFile(stdout),
                            .terminal = ::isatty(STDOUT_FILENO) == 1};
  app.add_option("--generate", args.path, kPathHelp)->required();
  decode::AddGenerateFlags(&app, &args.flags);
  app.add_flag("--json", args.flags.json,
               "Prompts, ids, texts, timings and the checkpoint as JSON");
  int code = 0;
  if (!Parse(&app, argc, argv, &code)) return code;
  if (!args.flags.json) args.tell = TellOnStderr;
  return Read([&](const Interrupted& interrupted) {
    args.interrupted = interrupted;
    return decode::RunGenerate(args);
  });
}

int RunEval(int argc, char** argv) {
  CLI::App app("mt-rank --eval: scores of a checkpoint, without daemons.");
  const char* const terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): one thread
  decode::EvalArgs args{.out = decode::ToFile(stdout),
                        .terminal = ::isatty(STDOUT_FILENO) == 1,
                        .shows_progress = true,
                        .live = ::isatty(STDERR_FILENO) == 1 && terminal != nullptr &&
                                std::string_view(terminal) != "dumb"};
  app.add_option("--eval", args.path, kPathHelp)->required();
  decode::AddEvalFlags(&app, &args.flags);
  app.add_flag("--json", args.flags.json, "Tasks, scores, timings and the checkpoint as JSON");
  int code = 0;
  if (!Parse(&app, argc, argv, &code)) return code;
  if (!args.flags.json) args.tell = TellOnStderr;
  return Read([&](const Interrupted& interrupted) {
    args.interrupted = interrupted;
    return decode::RunEval(args);
  });
}

}  // namespace

Status ReadUntilSignal(const std::function<Status(const Interrupted&)>& read) {
  std::atomic<bool> asked = false, reads = false;
  const Interrupted interrupted = [&] {
    reads = true;
    return asked.load();
  };
  const StopSignals signals([&](int count) {
    if (count > 1 || !reads) std::_Exit(control::kExitTransient);
    asked = true;
  });
  try {
    return read(interrupted);
  } catch (const kernels::DeviceError& error) {
    return base::Error(absl::StatusCode::kInternal, "{}", error.what());
  }
}

train::TrainResult RunReaderRank(const ReaderRankArgs& args) { return ReaderRank(args).Run(); }

bool AsksToRead(int argc, char** argv) {
  return Has(argc, argv, "--generate") || Has(argc, argv, "--eval");
}

int RunReader(int argc, char** argv) {
  return Has(argc, argv, "--generate") ? RunGenerate(argc, argv) : RunEval(argc, argv);
}

}  // namespace mt::rank
