// Two ranks are threads; the log sees the files of both.
#include "tests/worker/train/saves/crash_rig.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/inspect/verify.h"

namespace mt::train {
namespace {

constexpr std::string_view kDirectoryPath = "ckpts/tiny";
constexpr char kTag[] = "best";

// mkostemp's six letters after ".tmp.", or the template's.
bool IsTemporary(std::string_view file) {
  return file.size() > 11 && file.substr(file.size() - 11, 5) == ".tmp.";
}

std::string RoleOfFile(std::string_view file) {
  if (IsTemporary(file)) return "new " + RoleOfFile(file.substr(0, file.size() - 11));
  if (file == checkpoint::kManifestName) return "manifest";
  if (file == checkpoint::kEvaluationName) return "evaluation";
  if (file == checkpoint::kLabelName) return "label";
  if (file == checkpoint::kFenceName) return "fence";
  if (file == checkpoint::kFenceLockName) return "fence lock";
  if (file.starts_with("rank-")) return file.ends_with(".safetensors") ? "shard" : "rank manifest";
  return std::string(file);
}

std::string RoleOfFolder(std::string_view name) {
  if (checkpoint::ParseFolderName(name)) return "checkpoint";
  const bool unfinished =
      name.ends_with(".tmp") && checkpoint::ParseFolderName(name.substr(0, name.size() - 4));
  return unfinished ? "unfinished folder" : RoleOfFile(name);
}

// Tells the run's own observer, and puts what is durable by now into the log.
class MarkingObserver final : public TrainObserver {
 public:
  MarkingObserver(TrainObserver* told, crash::CrashLog* log,
                  const std::function<void(int64_t step)>& saved)
      : told_(told), log_(log), saved_(saved) {}
  void OnRunInfo(const RunInfo& info) override { told_->OnRunInfo(info); }
  void OnStep(const StepRecord& record) override { told_->OnStep(record); }
  void OnCheckpointFailed(int64_t step, const Status& why) override {
    told_->OnCheckpointFailed(step, why);
  }
  void OnCheckpointSaved(const CheckpointRecord& record) override {
    log_->Mark("saved " + std::to_string(record.step));
    if (saved_) saved_(record.step);
    told_->OnCheckpointSaved(record);
  }
  void OnCommandDone(const CommandResult& result) override {
    if (result.error.ok() && result.checkpoint && !result.checkpoint->label.tag.empty())
      log_->Mark("tagged " + std::to_string(result.checkpoint->step));
    told_->OnCommandDone(result);
  }

 private:
  TrainObserver* const told_;
  crash::CrashLog* const log_;
  const std::function<void(int64_t step)>& saved_;
};

// Saves that have ended on rank 0; the training thread waits for them, so that every save that is
// due finds the one before over.
class EndedSaves {
 public:
  void Add() {
    base::MutexLock lock(&mu_);
    ++ended_;
    changed_.NotifyAll();
  }
  void Await(int count) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    base::MutexLock lock(&mu_);
    while (ended_ < count && changed_.WaitUntil(&mu_, limit)) {
    }
  }

 private:
  base::Mutex mu_;
  base::CondVar changed_;
  int ended_ GUARDED_BY(mu_) = 0;
};

}  // namespace

std::string RoleOfPath(std::string_view path) {
  if (path.empty()) return "disk";
  if (path == "ckpts") return "checkpoint root";
  if (path == kDirectoryPath) return "directory";
  if (!path.starts_with("ckpts/tiny/")) return std::string(path);
  const size_t slash = path.rfind('/');
  const std::string_view name = path.substr(slash + 1);
  return slash == kDirectoryPath.size() ? RoleOfFolder(name) : RoleOfFile(name);
}

std::map<std::string, size_t> LoggedRun::LastByName() const {
  std::map<std::string, size_t> points;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind != crash::Operation::Kind::kMark) points[names[i]] = i;
  }
  return points;
}

const std::vector<int64_t>& SavedSteps() {
  static const std::vector<int64_t> steps = {4, 8, 12, 16, 24};
  return steps;
}

std::string DirectoryOn(const std::string& disk) { return disk + "/ckpts/tiny"; }

CrashTest::CrashTest() {
  constexpr const char* kMemory = "/dev/shm";
  std::string pattern = (::access(kMemory, W_OK) == 0 ? std::filesystem::path(kMemory)
                                                      : std::filesystem::temp_directory_path())
                            .append("mt-crash-XXXXXX")
                            .string();
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  top_ = std::filesystem::canonical(pattern).string();
}

CrashTest::~CrashTest() {
  std::error_code ignored;
  std::filesystem::remove_all(top_, ignored);
}

std::string CrashTest::Disk(std::string_view name) const { return base::JoinPath(top_, name); }

std::vector<RankOutcome> CrashTest::RunOn(
    const std::string& disk, const std::vector<std::string>& more, CommandSource* commands,
    const std::function<void(int rank, TrainArgs* args)>& adjust) {
  std::vector<std::string> job = {"parallel.data=2",
                                  "model.layers=1",
                                  "model.hidden_size=8",
                                  "training.precision=fp32",
                                  "training.train_iters=" + std::to_string(kLastStep),
                                  "training.eval.iters=1",
                                  "checkpoint.async_save=true",
                                  "checkpoint.keep_last=2",
                                  "checkpoint.keep_best=1"};
  job.insert(job.end(), more.begin(), more.end());
  return RunJob(TinyJob(job), {.root = dir_.path(),
                               .commands = commands,
                               .op_timeout = std::chrono::seconds(30),
                               .adjust = [&](int rank, TrainArgs* args) {
                                 args->idle_interval = std::chrono::milliseconds(0);
                                 args->saves_rest = false;  // steps wait for the saves
                                 args->checkpoint_root = disk + "/ckpts";
                                 if (adjust) adjust(rank, args);
                               }});
}

LoggedRun CrashTest::RunLogged(const std::string& disk, const crash::CrashLog::Faults& faults) {
  std::filesystem::remove_all(disk);
  std::filesystem::create_directory(disk);
  const auto tagged = [](const char* id) {
    return Command{.kind = CommandKind::kCheckpointNow, .id = id, .label = {.tag = kTag}};
  };
  Script commands({{3, tagged("first")}, {11, tagged("second")}});
  EndedSaves ended;
  LoggedRun run;
  crash::CrashLog log(disk);
  log.SetFaults(faults);
  std::unique_ptr<MarkingObserver> observer;
  run.outcomes = RunOn(disk, {"checkpoint.every_iters=8", "training.eval.every_iters=8"}, &commands,
                       [&](int rank, TrainArgs* args) {
                         if (rank != 0) return;
                         observer =
                             std::make_unique<MarkingObserver>(args->observer, &log, told_saved_);
                         args->observer = observer.get();
                         args->checkpoint_failpoint = [&](std::string_view point) {
                           log.Mark(point);
                           if (point == "over") ended.Add();
                           return OkStatus();
                         };
                         args->after_step = [&](int64_t step, const params::ParamStore&) {
                           int begun = 0;
                           for (const int64_t saved : SavedSteps()) begun += saved < step ? 1 : 0;
                           ended.Await(begun);
                         };
                       });
  log.Stop();
  EXPECT_EQ(log.Check(), "");
  run.operations = log.operations();
  run.before = log.before();
  run.names = crash::NamesOf(run.operations, RoleOfPath);
  return run;
}

std::vector<RankOutcome> CrashTest::GoOn(const std::string& disk,
                                         const crash::CrashLog::Faults& faults) {
  const auto all = checkpoint::ListCheckpoints(DirectoryOn(disk));
  EXPECT_TRUE(all.ok()) << all.status();
  const int64_t step = all.ok() && !all->empty() ? all->back().step : 0;
  std::optional<crash::CrashLog> log;
  if (faults) log.emplace(disk).SetFaults(faults);
  return RunOn(disk,
               {"checkpoint.every_iters=2", "training.eval.every_iters=8",
                "training.exit_at_iter=" + std::to_string(step + 2)},
               nullptr, [this](int, TrainArgs* args) {
                 args->base = base_;
                 args->make_checkpoint_root = !base_.has_value();
               });
}

std::string CrashTest::DamageOn(const std::string& disk) {
  const auto all = checkpoint::ListCheckpoints(DirectoryOn(disk));
  if (!all.ok()) return base::Message(all.status());
  checkpoint::VerifyArgs verify;
  for (const checkpoint::CheckpointId& id : *all)
    verify.folders.push_back(base::JoinPath(DirectoryOn(disk), checkpoint::FolderName(id)));
  for (const checkpoint::Damage& damage : checkpoint::Verify(verify).damage)
    return fmt::format("{}/{}: {} {}", damage.folder, damage.file, damage.slice, damage.what);
  return "";
}

std::string CrashTest::ComplaintOfGoingOn(const std::string& disk, int64_t at_least,
                                          const std::vector<StepRecord>& straight) {
  if (std::string damage = DamageOn(disk); !damage.empty()) return damage;
  const std::vector<RankOutcome> ranks = GoOn(disk);
  for (const RankOutcome& rank : ranks) {
    if (!rank.result.status.ok()) return "it does not go on: " + base::Message(rank.result.status);
  }
  const Observed& seen = ranks[0].seen;
  const int64_t from = seen.infos.at(0).resumed_from_step;
  if (from < at_least)
    return fmt::format("it goes on from step {}, though {} was saved", from, at_least);
  if (seen.steps.size() != 2) return fmt::format("{} steps", seen.steps.size());
  for (const StepRecord& got : seen.steps) {
    const StepRecord& want = straight.at(static_cast<size_t>(got.step()) - 1);
    if (got.loss() != want.loss() || got.grad_norm() != want.grad_norm())
      return fmt::format("step {} differs from the run that went straight on", got.step());
  }
  if (seen.saves.empty() || seen.saves.back().step != from + 2) return "it did not save";
  for (const auto& entry : std::filesystem::directory_iterator(DirectoryOn(disk))) {
    if (entry.path().filename().string().ends_with(".tmp"))
      return "leaves " + entry.path().string();
  }
  return "";
}

}  // namespace mt::train
