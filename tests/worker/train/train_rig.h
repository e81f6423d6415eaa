// Whole training runs in one process: ranks are threads, each with its own backend and trainer, on
// a tiny GPT over token files written into a temporary folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/step.pb.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/failure/failure.h"
#include "worker/train/trainer.h"

namespace mt::kernels::async {
class AsyncWorld;
enum class Sharing : uint8_t;
}  // namespace mt::kernels::async

namespace mt::train {

using megatrain::v1::StepRecord;

// Removed with all it holds when destroyed.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Writes `documents` documents of 20 to 59 byte tokens with some structure, so that a model learns.
// `bad_document` (if not negative) ends in a token beyond the vocabulary.
void WriteTokens(const std::string& prefix, int documents, int bad_document = -1);

// The job of this YAML text, completed and resolved.
megatrain::v1::JobSpec JobFromText(std::string_view text,
                                   const std::vector<std::string>& overrides);

// 2 layers x 16, sequence 16, G = 8, fp64, 20 steps, Adam at 1e-3, dropout, clipping; `overrides`
// are "training.seed=7" and the like. Completed and resolved.
megatrain::v1::JobSpec TinyJob(const std::vector<std::string>& overrides);

// A phase's time, and memory by kind, of a step's record; 0 where it has no such entry.
double SecondsIn(const StepRecord& step, report::StepPhase phase);
memory::BytesByKind MemoryOf(const StepRecord& step);

// Everything one rank's observer was told.
struct Observed final : public TrainObserver {
  std::vector<TrainState> states;
  std::vector<int64_t> state_steps;  // told with each of them
  std::vector<RunInfo> infos;
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  std::vector<CheckpointRecord> saves;
  std::vector<std::pair<int64_t, Status>> failed_saves;
  std::vector<std::string> deleted;
  std::vector<CommandResult> commands_done;
  std::vector<RunSettings> settings;
  std::vector<RankCounters> counters;  // one per step
  std::vector<std::pair<Status, bool>> failures;
  int64_t progress_calls = 0;

  void OnState(TrainState state, int64_t step) override {
    states.push_back(state);
    state_steps.push_back(step);
  }
  void OnProgress(int64_t) override { ++progress_calls; }
  void OnRunInfo(const RunInfo& info) override { infos.push_back(info); }
  void OnStep(const StepRecord& record) override { steps.push_back(record); }
  void OnEval(const EvalRecord& record) override { evals.push_back(record); }
  void OnCheckpointSaved(const CheckpointRecord& record) override { saves.push_back(record); }
  void OnCheckpointFailed(int64_t step, const Status& why) override {
    failed_saves.emplace_back(step, why);
  }
  void OnCheckpointsDeleted(const std::vector<std::string>& paths) override {
    deleted.insert(deleted.end(), paths.begin(), paths.end());
  }
  void OnCounters(const RankCounters& now) override { counters.push_back(now); }
  void OnCommandDone(const CommandResult& result) override { commands_done.push_back(result); }
  void OnSettings(const RunSettings& now) override { settings.push_back(now); }
  void OnFailed(const Status& why, bool alone) override { failures.emplace_back(why, alone); }
};

// Commands that the poll of a given step returns: polls count from 1 in each run.
class Script final : public CommandSource {
 public:
  explicit Script(std::vector<std::pair<int64_t, Command>> commands)
      : commands_(std::move(commands)) {}
  std::optional<Command> Poll() override;

 private:
  std::vector<std::pair<int64_t, Command>> commands_;
  int64_t polls_ = 0;
};

struct RankOutcome {
  TrainResult result;  // of Create where that failed
  bool created = false;
  std::string last_mark;  // when the run was over
  Observed seen;
};

struct RunOptions {
  std::string root;  // data, checkpoints and cache lie below it
  CommandSource* commands = nullptr;
  const base::Clock* clock = base::Clock::Real();
  int64_t memory_limit_bytes = 0;
  kernels::Backend* backend = nullptr;  // of the only rank; nullptr: each makes one of a CPU thread
  std::chrono::seconds op_timeout{60};  // a rank that waits for another one longer fails
  // Ranks have asynchronous devices of this world, which are treated as this kind; nullptr: CPUs.
  kernels::async::AsyncWorld* world = nullptr;
  kernels::DeviceKind async_kind = kernels::DeviceKind::kCpu;
  // What a rank's device shares with the others; empty: nothing.
  std::function<kernels::async::Sharing(int rank)> sharing;
  // Calls on the world's devices are compared among members (worker/comm/call_check.h).
  bool checked_calls = false;
  // Changes one rank's arguments before its trainer is made.
  std::function<void(int rank, TrainArgs* args)> adjust;
};

// Runs the job on its number of ranks, each a thread; outcomes by rank. For any completed and
// resolved job (TinyJob, JobFromText).
std::vector<RankOutcome> RunJob(const megatrain::v1::JobSpec& job, const RunOptions& options);

// Overrides for TP 2 x PP 2 x DP 2 with sequence parallelism, ZeRO-1 and many buckets.
std::vector<std::string> CubeLayout();

// What the polls of a run return.
using Commands = std::vector<std::pair<int64_t, Command>>;

// Token files in a folder of their own, and runs of TinyJob over them; idle reductions without a
// pause.
class TrainTest : public ::testing::Test {
 protected:
  void SetUp() override;
  // TinyJob with layout_ and these overrides; outcomes by rank.
  std::vector<RankOutcome> Run(std::vector<std::string> overrides, Commands scripted = {});
  // Every rank has ended well, after this step.
  static void ExpectClean(const std::vector<RankOutcome>& outcomes, int64_t last_step);
  // Complete checkpoints below the checkpoint root.
  std::vector<checkpoint::CheckpointId> OnDisk(const std::string& directory = "tiny") const;
  std::vector<int64_t> StepsOnDisk() const;

  TempDir dir_;
  std::vector<std::string> layout_;  // overrides of every run
  const base::Clock* clock_ = base::Clock::Real();
  std::chrono::seconds op_timeout_{60};
  std::function<void(int rank, TrainArgs* args)> adjust_;
};

// |a - b| <= relative * |b| for losses and grad norms of all steps.
void ExpectSameCurve(const std::vector<StepRecord>& got, const std::vector<StepRecord>& want,
                     double loss_tolerance, double norm_tolerance);
// To the last bit.
void ExpectEqualCurve(const std::vector<StepRecord>& got, const std::vector<StepRecord>& want);

}  // namespace mt::train
