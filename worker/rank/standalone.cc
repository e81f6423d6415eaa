// Completes the job file as the coordinator would, resolves it for this host and runs it; SIGTERM
// and SIGINT become a stop command for rank 0.
#include "worker/rank/standalone.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sched.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/control/rank_exit_codes.h"
#include "common/report/bench_text.h"
#include "common/spec/derived.h"
#include "common/spec/field_effects.h"
#include "common/spec/job_kind.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/comm/file_store.h"
#include "worker/decode/job/reader_job.h"
#include "worker/rank/check_blas.h"
#include "worker/rank/command_queue.h"
#include "worker/rank/compute_device.h"
#include "worker/rank/environment.h"
#include "worker/rank/members.h"
#include "worker/rank/metrics_file.h"
#include "worker/rank/outcome.h"
#include "worker/rank/reader.h"
#include "worker/rank/run.h"
#include "worker/rank/step_log.h"
#include "worker/rank/stop_signals.h"
#include "worker/train/job_data/job_tokenizer.h"

namespace mt::rank {

using megatrain::v1::JobSpec;

namespace {

constexpr char kAddress[] = "127.0.0.1";

int64_t UsableCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Before the run, not after it: whether the trace can be written.
Status CheckTraceFile(const std::string& path) {
  if (path.empty()) return OkStatus();
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return base::InvalidArgument("--trace {}: is a folder; name a file in it", path);
  // It is replaced: a device or a pipe would be gone.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    return base::InvalidArgument("--trace {}: is no regular file; name another", path);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return OkStatus();
  return base::InvalidArgument("--trace {}: the folder {} cannot be written to: {}", path,
                               folder.string(), std::generic_category().message(errno));
}

Status LoadStandaloneJob(const Options& options, JobSpec* job) {
  std::vector<std::string> overrides;
  if (options.bench) overrides = spec::BenchOverrides();
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  if (options.num_ranks > 0) {
    overrides.push_back(fmt::format("placement.slots={}", options.num_ranks));
  }
  RETURN_IF_ERROR(CheckTraceFile(options.trace_file));
  RETURN_IF_ERROR(
      spec::ToStatus(spec::LoadJobFile(options.job_file, overrides, spec::ValidateContext{}, job)));
  const int64_t world = spec::WorldSize(*job);
  if (options.num_ranks > 0 && world != options.num_ranks) {
    return base::InvalidArgument("--ranks {}, but the job is laid out for {} ranks",
                                 options.num_ranks, world);
  }
  if (options.restart && spec::KindOf(*job).has_steps && job->checkpoint().directory() == "none") {
    return base::InvalidArgument(
        "--restart: the job saves no checkpoints (checkpoint.directory is none), so that it begins "
        "a run anyhow");
  }
  return OkStatus();
}

// Whether all members of a run have found a GPU each.
StatusOr<bool> AllHaveGpus(bool mine, int rank, int64_t world, comm::RendezvousStore* store) {
  constexpr std::chrono::minutes kLimit{2};  // to load libraries and make a context
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + kLimit;
  const auto key = [](int64_t member) { return fmt::format("device/{}", member); };
  RETURN_IF_ERROR(store->Set(key(rank), mine ? "gpu" : "cpu"));
  for (int64_t member = 0; member < world; ++member) {
    ASSIGN_OR_RETURN(const std::string device, store->Get(key(member), deadline));
    if (device != "gpu") return false;
  }
  return true;
}

// A GPU for each member, or the CPU for all.
Status ChooseDevice(const Options& options, JobSpec* job, std::unique_ptr<kernels::Backend>* gpu,
                    comm::RendezvousStore* store) {
  *gpu = TakeGpuIfAny({.uuid = options.gpu, .ordinal = options.rank}, job);
  const int64_t world = spec::WorldSize(*job);
  if (world == 1) return OkStatus();
  ASSIGN_OR_RETURN(const bool all, AllHaveGpus(*gpu != nullptr, options.rank, world, store));
  if (all || *gpu == nullptr) return OkStatus();
  log::Info("training on the CPU", {{"why", "there is not a GPU for every rank"}});
  gpu->reset();
  job->mutable_placement()->set_device(megatrain::v1::Placement::DEVICE_CPU);
  return OkStatus();
}

// Resolves the job for this host. *gpu becomes the backend if the job leaves the device open and a
// GPU was found, else stays nullptr. Called after InitLog, because the choice is logged.
Status Resolve(const Options& options, JobSpec* job, std::unique_ptr<kernels::Backend>* gpu,
               comm::RendezvousStore* store) {
  if (!job->placement().has_device()) {
    RETURN_IF_ERROR(ChooseDevice(options, job, gpu, store));
  }
  return spec::ToStatus(spec::ResolveForSlots(
      {.gpu = job->placement().device() == megatrain::v1::Placement::DEVICE_GPU,
       .cores_per_node = UsableCores(),
       .slots_per_node = spec::WorldSize(*job)},
      job));
}

Status InitLog(const Options& options, const JobSpec& job, int64_t world) {
  log::Config config{.binary = "mt-rank"};
  // All ranks would log the same.
  if (options.rank != 0) config.level = log::Level::kWarn;
  if (!options.log_root.empty()) {
    const std::string folder = base::JoinPath(options.log_root, job.name());
    RETURN_IF_ERROR(base::MakeDirs(folder));
    config.file = fmt::format("{}/rank-{:05}.log", folder, options.rank);
  }
  log::Init(config);
  TellCleared();
  if (world > 1) log::SetRank(options.rank);
  return OkStatus();
}

void LogFieldNotes(const JobSpec& job) {
  for (const spec::FieldNote& note : spec::FieldNotes(job))
    log::Warn("note on the job", {{"field", note.path}, {"note", note.text}});
}

// The first signal asks rank 0 to save and stop, in which all ranks take part; the second one ends
// the process at once.
void OnStopSignal(int count, int rank, CommandQueue* commands) {
  if (count > 1) {
    log::Flush();
    std::_Exit(control::kExitTransient);
  }
  if (rank != 0) return;
  log::Info("asked to stop: saving after this step");
  commands->Push({.kind = train::CommandKind::kStopWithSave});
}

// The report of a benchmark is the program's output, so it goes to stdout.
class StandaloneLog final : public StepLog {
 public:
  using StepLog::StepLog;
  void OnBench(const megatrain::v1::BenchReport& report) override {
    StepLog::OnBench(report);
    log::Flush();
    std::fputs(report::BenchText(report).c_str(), stdout);
    std::fflush(stdout);
  }
};

void LogEnd(const train::TrainResult& result) {
  const train::RunSummary& summary = result.summary;
  log::Info("summary of the run",
            {{"skipped_steps", summary.skipped_steps},
             {"restarts", summary.restarts},
             {"passes_over_the_data", fmt::format("{:.1f}", summary.passes)},
             {"best_validation_loss", summary.best_evaluation
                                          ? fmt::format("{:.6f}", summary.best_evaluation->loss)
                                          : std::string("none")}});
  log::Info("training has ended", {{"last_step", result.last_step},
                                   {"completed", result.completed},
                                   {"final_save_failed", result.final_save_failed},
                                   {"message", result.message}});
}

Status TrainHere(const Options& options, JobSpec job) {
  const int64_t world = spec::WorldSize(job);
  RETURN_IF_ERROR(InitLog(options, job, world));
  std::unique_ptr<kernels::Backend> backend;
  comm::FileStore store(options.rendezvous);
  RETURN_IF_ERROR(Resolve(options, &job, &backend, &store));
  if (options.rank == 0 && !options.bench) {
    LogFieldNotes(job);
    if (!job.telemetry().tensorboard().empty())
      log::Warn(
          "telemetry.tensorboard has no effect: a worker agent writes event files, and this "
          "run has none; --metrics-file writes the same numbers");
  }
  if (job.placement().device() != megatrain::v1::Placement::DEVICE_GPU)
    RETURN_IF_ERROR(BlasVerdict());
  RETURN_IF_ERROR(train::SettleVocabulary(options.data_root, &job));
  std::unique_ptr<MetricsFile> metrics;
  if (!options.metrics_file.empty() && options.rank == 0) {
    ASSIGN_OR_RETURN(metrics, MetricsFile::Open(options.metrics_file));
  }
  StandaloneLog observer(job, metrics.get());
  CommandQueue commands;
  const StopSignals signals(
      [rank = options.rank, &commands](int count) { OnStopSignal(count, rank, &commands); });
  const train::TrainResult result =
      Run({.job = &job,
           .restart = options.restart && options.rank == 0 ? base::NewUid() : "",
           .rank = options.rank,
           .world_size = static_cast<int>(world),
           .gpu = options.gpu,
           .backend = std::move(backend),
           .data_root = options.data_root,
           .checkpoint_root = options.checkpoint_root,
           .make_checkpoint_root = true,
           .cache_root = options.cache_root,
           .address = kAddress,
           .store = &store,
           .tcp_only = options.tcp_only,
           .observer = &observer,
           .commands = options.rank == 0 ? &commands : nullptr,
           .trace_file = options.trace_file,
           .host_delay = std::chrono::milliseconds(options.host_delay_ms)});
  if (result.status.ok()) LogEnd(result);
  return result.status;
}

// Of kinds that read a checkpoint: what else the command line asks for is for a run.
Status CheckReaderOptions(const Options& options) {
  if (!options.metrics_file.empty())
    return base::InvalidArgument("--metrics-file: a job that reads a checkpoint makes no steps");
  if (options.restart)
    return base::InvalidArgument("--restart: a job that reads a checkpoint begins no run");
  if (!options.trace_file.empty())
    return base::InvalidArgument("--trace: a job that reads a checkpoint has no steps to trace");
  if (!options.cache_root.empty()) {
    return base::InvalidArgument(
        "--cache-root: a job that reads a checkpoint reads no samples, and keeps no index");
  }
  return OkStatus();
}

// A reader (spec::JobKind::reads), whose text or scores are the program's output.
Status ReadHere(const Options& options, JobSpec job) {
  RETURN_IF_ERROR(CheckReaderOptions(options));
  RETURN_IF_ERROR(InitLog(options, job, 1));
  std::unique_ptr<kernels::Backend> backend;
  RETURN_IF_ERROR(Resolve(options, &job, &backend, nullptr));
  LogFieldNotes(job);
  if (job.placement().device() != megatrain::v1::Placement::DEVICE_GPU)
    RETURN_IF_ERROR(BlasVerdict());
  decode::ReaderJobArgs args{.job = &job,
                             .data_root = options.data_root,
                             .checkpoint_root = options.checkpoint_root,
                             .out = decode::ToFile(stdout),
                             .terminal = ::isatty(STDOUT_FILENO) == 1,
                             .shows_progress = true,
                             .tell =
                                 [](std::string_view line) {
                                   log::Info("a checkpoint was read", {{"what", line}});
                                 },
                             .make_backend = [&]() -> StatusOr<std::unique_ptr<kernels::Backend>> {
                               if (backend != nullptr) return std::move(backend);
                               return MakeBackend(job,
                                                  {.uuid = options.gpu, .ordinal = options.rank});
                             }};
  return ReadUntilSignal([&args](const Interrupted& interrupted) {
    args.interrupted = interrupted;
    return decode::RunReaderJob(args);
  });
}

int Finish(const Status& status) {
  log::Flush();
  if (absl::IsCancelled(status)) return control::kExitTransient;  // a reader that was interrupted
  if (!status.ok()) std::fprintf(stderr, "mt-rank: %s\n", base::Message(status).c_str());
  return ExitCodeOf(status);
}

}  // namespace

int RunStandalone(const Options& options, int argc, char** argv) {
  JobSpec job;
  const Status loaded = LoadStandaloneJob(options, &job);
  if (!loaded.ok()) return Finish(loaded);
  if (spec::KindOf(job).reads) return Finish(ReadHere(options, job));
  const int64_t world = spec::WorldSize(job);
  if (world == 1) return Finish(TrainHere(options, job));
  return RunMembers(static_cast<int>(world), std::vector<std::string>(argv, argv + argc));
}

int RunMember(const Options& options) {
  JobSpec job;
  Status status = LoadStandaloneJob(options, &job);
  if (status.ok()) status = TrainHere(options, job);
  log::Flush();
  if (!status.ok()) {
    const Status told = base::WriteFileAtomic(MemberErrorFile(options.rendezvous, options.rank),
                                              base::Message(status));
    if (!told.ok()) std::fprintf(stderr, "mt-rank: %s\n", base::Message(told).c_str());
  }
  return ExitCodeOf(status);
}

}  // namespace mt::rank
