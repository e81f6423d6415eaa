// An update of a running job: rank 0's settings become those of every rank, or of none.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/comm/process_group.h"
#include "worker/engine/engine.h"
#include "worker/train/checkpointer.h"
#include "worker/train/evaluator.h"
#include "worker/train/observer.h"
#include "worker/train/run_data.h"
#include "worker/train/run_settings.h"

namespace mt::train {

// What an update changes. Everything must outlive the call.
struct UpdateArgs {
  comm::ProcessGroup* world = nullptr;  // nullptr: one rank
  engine::Engine* engine = nullptr;
  spec::Course course;
  std::string data_root, cache_root;      // as TrainArgs'
  megatrain::v1::JobSpec* job = nullptr;  // the job as it is
  RunData* data = nullptr;                // another cadence may need more validation samples
  Evaluator* evaluator = nullptr;
  Checkpointer* checkpointer = nullptr;
  TrainObserver* observer = nullptr;
};

// Collective and blocking, at a step boundary; `asked` is rank 0's, nullopt elsewhere. The status
// is the groups'. *refused: why no rank has changed anything (a rank's validation data do not
// open), OK where all have.
Status UpdateRun(const UpdateArgs& args, const std::optional<RunSettings>& asked, Status* refused);

}  // namespace mt::train
