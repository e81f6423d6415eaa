// Where a run starts: which epoch it is and which checkpoint it goes on from, decided by rank 0 for
// all, and the loading of that checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/data/index_record.h"
#include "worker/train/engine.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

struct StartPoint {
  std::string directory;  // where this run saves, absolute; empty: nowhere
  int64_t epoch = 1;      // of this run
  // The checkpoint to go on from: in `load_directory`, usually the same folder. None: a cold start.
  std::string load_directory;
  std::optional<checkpoint::CheckpointId> load;
};

struct StartArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed
  std::string checkpoint_root;                  // absolute; made if missing
  int64_t epoch = 0;                            // 0: above every epoch in the directory
};

// Collective. `checkpoint.load` names a step, a folder of the job's directory, or a path below the
// root; unset, the newest complete checkpoint of the directory is taken, so that a job never starts
// cold over its own checkpoints unless `checkpoint.fresh`. kFailedPrecondition where args.epoch is
// not above the epochs found, kNotFound where `load` finds nothing.
StatusOr<StartPoint> FindStart(const StartArgs& args, checkpoint::Exchange* exchange);

struct LoadStateArgs {
  const megatrain::v1::JobSpec* job = nullptr;
  std::string directory;  // that holds the checkpoint
  checkpoint::CheckpointId id;
  const data::IndexRecord* train_data = nullptr;  // of the data set that is open now
  Engine* engine = nullptr;
  std::function<void(int64_t bytes)> progress;  // may be empty
};

// Loads parameters, moments and scalars into the engine; each rank on its own. Refuses
// (kFailedPrecondition, both values named) another model, sample order, batch, seed or run length.
// Returns the manifest.
StatusOr<checkpoint::Manifest> LoadState(const LoadStateArgs& args);

// A checkpoint of `directory` as its manifest tells of it; its save's times are not known any more.
StatusOr<CheckpointRecord> RecordOf(const std::string& directory,
                                    const checkpoint::Manifest& manifest, int64_t seq_length);

}  // namespace mt::train
