// The choices that a backend makes by timing: algorithms of matrix products, fused or separate
// forms. Ops note what they will need while a run is planned (WorkspaceBytes); the table is settled
// once, before the first step: entries are imported (a checkpoint's, another rank's, the disk's),
// what is still missing is timed. Since an algorithm decides the bits of a product, equal tables on
// equal devices give equal bits, in a later process and on every rank.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::kernels {

// One choice. Texts are the backend's own, without spaces at the ends; the key names operation,
// shape, types, epilogue and SM budget, the choice what won.
struct TuningEntry {
  std::string key;
  std::string choice;
  friend bool operator==(const TuningEntry&, const TuningEntry&) = default;
};

// How long one of the ways to do what a key asks for took.
struct TuningTime {
  std::string choice;
  double us = 0;
  bool chosen = false;
};

// Thread-safe; calls block. Device errors are DeviceError.
class TuningTable {
 public:
  virtual ~TuningTable() = default;
  // What entries are valid for: library versions and the device's name and size, not the driver.
  // One line.
  virtual std::string Identity() const = 0;
  // Keys that ops were planned with and that have no entry yet, sorted.
  virtual std::vector<std::string> Missing() const = 0;
  // Times what has no entry among these keys, which may be another rank's Missing(). Takes memory
  // of the device for operands, the largest product's and 256 MB, and gives it back.
  // kInvalidArgument: not a key of this backend; nothing is timed then.
  virtual Status Time(const std::vector<std::string>& keys) = 0;
  // All there are, by key.
  virtual std::vector<TuningEntry> Entries() const = 0;
  // Takes over entries that a table of `identity` gave, in place of own ones of the same keys.
  // Returns the keys of those that the library does not accept here: they are left out, to be timed
  // anew. kFailedPrecondition, naming both identities: another's, nothing is taken.
  virtual StatusOr<std::vector<std::string>> Import(const std::string& identity,
                                                    const std::vector<TuningEntry>& entries) = 0;
  // Times every way that the library offers for `key` against each other, hot, and does not change
  // the table; fastest first. For benchmarks. kInvalidArgument as above.
  virtual StatusOr<std::vector<TuningTime>> Survey(const std::string& key) = 0;
};

}  // namespace mt::kernels
