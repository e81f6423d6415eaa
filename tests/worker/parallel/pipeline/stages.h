// Runs all stages of a pipeline as threads of this program, over any group factory, with work that
// checks its inputs (fake_work.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "worker/comm/group_factory.h"
#include "worker/parallel/pipeline/executor.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

struct StagesArgs {
  // Its slots are the work's; passes run in this order, each of the same stages and chunks.
  const Schedule* training = nullptr;
  std::vector<const Schedule*> passes;
  bool overlap = true;
  uint64_t seed = 0;  // of the delays
  int max_delay_us = 100;
  std::function<bool(int position)> is_empty;
  bool early_gradient = false;
  // Called by `stage`'s thread in each action: its error is the action's. May abort the executor.
  std::function<Status(int stage, const Action&, Executor&)> inject;
  std::function<void(int stage, Executor&)> after_pass;
  // The factory of a stage; many may share one.
  std::function<comm::GroupFactory&(int stage)> factory;
};

// By stage: OK where all passes ran and each computed everything it should; else the first error.
// Returns when every stage's executor has ended.
std::vector<Status> RunStages(const StagesArgs& args);

}  // namespace mt::parallel
