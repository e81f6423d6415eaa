// One table of timed choices for a whole job (kernels/ops/tuning.h), settled once its ranks know
// what they will run and before they take their memory. A choice comes from the checkpoint if it is
// there, else from the cache on disk; the rest is timed once per shape class. So all ranks with the
// same shapes take the same choices, and a resumed run computes the bits of one that never stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/tuning.h"
#include "worker/checkpoint/exchange.h"

namespace mt::tuning {

// Choices by key, by the identity of the tables that made them: a job's ranks need not have the
// same kind of device.
using TuningTables = std::map<std::string, std::map<std::string, std::string>>;

// The tables as a JSON object, which a checkpoint keeps as the fact kTuningFact.
std::string ToJson(const TuningTables& tables);
// The inverse. kDataLoss for any other text; any bytes are safe.
StatusOr<TuningTables> ParseTuningTables(const std::string& text);
inline constexpr char kTuningFact[] = "tuning";

struct SettleArgs {
  kernels::TuningTable* table = nullptr;     // this rank's
  checkpoint::Exchange* exchange = nullptr;  // of all ranks
  std::string cache_root;                    // empty: nothing is kept on disk
  TuningTables stored;                       // on rank 0: those of the checkpoint to go on from
  const base::Clock* clock = nullptr;
  std::function<void()> progress;  // called after each choice that was timed; may be empty
};

struct SettledTuning {
  TuningTables tables;  // all that is known, the same on every rank; checkpoints keep it
  // How many of this rank's planned choices came from where.
  int64_t from_checkpoint = 0, from_cache = 0, timed = 0, received = 0;
  double seconds = 0;  // of the whole settling
};

// Collective and blocking. Ranks that miss the same keys on the same kind of device are a class;
// the first of each reads its cache and times, keys of several classes once. Every rank keeps its
// own choices in its cache; a failure to do so is logged. kResourceExhausted (cause OOM) on every
// rank where timing finds no memory on one; otherwise the group's errors.
StatusOr<SettledTuning> SettleTuning(const SettleArgs& args);

// Times the choices that the backend still misses, for this rank alone, and runs each planned call
// once (Backend::RunPlanned). kResourceExhausted (cause OOM): the device has no room for that.
Status MakeReady(kernels::Backend* backend);
// The status of a device that has no room while algorithms are chosen: kResourceExhausted, cause
// OOM.
Status NoMemoryForChoices(const kernels::DeviceMemoryError& error);

}  // namespace mt::tuning
