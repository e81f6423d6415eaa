// A tiny job as a benchmark, its ranks as threads on the CPU backend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/step.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/train/observer.h"

namespace mt::bench {

// Completed and resolved; `overrides` win over those of a benchmark.
megatrain::v1::JobSpec BenchJob(std::vector<std::string> overrides);

// What a rank's observer was told.
struct Seen final : public train::TrainObserver {
  std::vector<megatrain::v1::StepRecord> steps;
  std::vector<megatrain::v1::BenchReport> reports;
  std::vector<train::TrainState> states;
  bool left_before_report = false;

  void OnStep(const megatrain::v1::StepRecord& record) override { steps.push_back(record); }
  void OnState(train::TrainState state, int64_t) override { states.push_back(state); }
  void OnBench(const megatrain::v1::BenchReport& report) override {
    left_before_report = states.back() == train::TrainState::kExiting;
    reports.push_back(report);
  }
};

struct Rank {
  Rank();
  std::unique_ptr<kernels::Backend> backend;  // of one thread
  std::unique_ptr<parallel::RankGroups> groups;
  Seen seen;
};

// Runs the job's ranks as threads; what rank 0 has reported. `stopped`: as if a command had stopped
// the run. `trace_file`: BenchRun::Args::trace_file.
Seen RunBench(const megatrain::v1::JobSpec& job, bool stopped = false,
              const std::string& trace_file = "");

}  // namespace mt::bench
