// The choices that a backend makes by timing: the algorithm of each GEMM, and fused against
// separate epilogues. Ops register what they will need while a run is planned (LinearOps::Plan);
// the table is completed once, before the first step: entries are imported (from a checkpoint,
// another rank or the disk), and what is still missing is timed. The algorithm decides the bits of
// a GEMM's result, so equal tables on equal devices give equal bits, in a later process and on
// every rank.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::kernels {

// One choice as text in the backend's own format, without leading or trailing spaces: the key names
// operation, shape, dtypes, epilogue and SM budget; the choice names the winner.
struct TuningEntry {
  std::string key;
  std::string choice;
  friend bool operator==(const TuningEntry&, const TuningEntry&) = default;
};

// The time of one alternative for a key.
struct TuningTime {
  std::string choice;
  double us = 0;
  bool chosen = false;
};

// Thread-safe; calls block. Errors of the device are thrown as DeviceError.
class TuningTable {
 public:
  virtual ~TuningTable() = default;
  // Returns the configuration that entries are valid for: library versions, the device's name and
  // size, but not the driver. One line.
  virtual std::string Identity() const = 0;
  // Keys that ops have registered and that have no entry yet, sorted.
  virtual std::vector<std::string> Missing() const = 0;
  // Times those of `keys` that have no entry; they may be another rank's Missing(). Allocates up to
  // 256 MB of device memory beyond the operands of the largest GEMM, and frees it.
  // kInvalidArgument: a key is not one of this backend, and nothing is timed.
  virtual Status Time(const std::vector<std::string>& keys) = 0;
  // All entries, sorted by key.
  virtual std::vector<TuningEntry> Entries() const = 0;
  // Adopts entries of a table with the given identity, replacing own entries of the same keys.
  // Returns the keys of those that the library does not accept here; they are left out and have to
  // be timed. kFailedPrecondition, with both identities in the message: the identity differs, and
  // nothing is adopted.
  virtual StatusOr<std::vector<std::string>> Import(const std::string& identity,
                                                    const std::vector<TuningEntry>& entries) = 0;
  // Times all alternatives for `key` against each other on a hot device, fastest first, without
  // changing the table; empty where there is no choice. For benchmarks. kInvalidArgument: not a key
  // of this backend.
  virtual StatusOr<std::vector<TuningTime>> Survey(const std::string& key) = 0;
};

}  // namespace mt::kernels
