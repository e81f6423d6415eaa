// One table of timed choices for a whole job (kernels/ops/tuning.h), settled once its ranks know
// what they will run and before they take their memory: what the checkpoint holds first, then what
// the disk's cache holds, the rest timed once per shape class. So all ranks with the same shapes
// take the same choices, and a run that goes on computes the bits that it would have computed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/ops/tuning.h"
#include "worker/checkpoint/exchange.h"

namespace mt::tuning {

// Choices by key, by the identity of the tables that made them: a job's ranks need not have the
// same kind of device.
using TuningTables = std::map<std::string, std::map<std::string, std::string>>;

// As a JSON object, what a checkpoint keeps as the fact kTuningFact.
std::string ToJson(const TuningTables& tables);
// kDataLoss: it is not what ToJson gives; any bytes are safe.
StatusOr<TuningTables> ParseTuningTables(const std::string& text);
inline constexpr char kTuningFact[] = "tuning";

struct SettleArgs {
  kernels::TuningTable* table = nullptr;     // this rank's
  checkpoint::Exchange* exchange = nullptr;  // of all ranks
  std::string cache_root;                    // empty: nothing is kept on disk
  TuningTables stored;                       // rank 0: of the checkpoint to go on from
  const base::Clock* clock = nullptr;
  std::function<void()> progress;  // called after each choice that was timed; may be empty
};

struct SettledTuning {
  TuningTables tables;  // all that is known, the same on every rank: for checkpoints
  // This rank's planned choices, by where they come from.
  int64_t from_checkpoint = 0, from_cache = 0, timed = 0, received = 0;
  double seconds = 0;  // of the whole settling
};

// Collective and blocking. Ranks that miss the same keys on the same kind of device are a class;
// the first of each reads its cache and times, keys of several classes once. Every rank keeps its
// own choices in its cache; that it cannot is logged. kResourceExhausted (cause OOM) where timing
// finds no memory, on every rank; otherwise the group's errors.
StatusOr<SettledTuning> SettleTuning(const SettleArgs& args);

// Times what the table (nullptr: a backend that chooses nothing) still misses, for this rank alone.
Status TimeMissing(kernels::TuningTable* table);
// What a device without room while algorithms are chosen becomes: kResourceExhausted, cause OOM.
Status NoMemoryForChoices(const kernels::DeviceMemoryError& error);

}  // namespace mt::tuning
