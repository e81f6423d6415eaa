// Compares two checkpoints, whatever the layouts that saved them: tensor by tensor, bit by bit, and
// what else their manifests tell. Blocking; several threads. Digests of tensors are
// not checked (verify.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/checkpoint/inspect/verify.h"

namespace mt::checkpoint {

struct DiffArgs {
  CheckpointPlace a, b;
  int threads = 1;
  BytesProgress progress;  // may be empty; bytes of both
};

struct TensorDifference {
  std::string key;
  std::string why;  // not comparable: only one has it, or the shapes differ; empty: the rest holds
  int64_t num_elements = 0;
  int64_t num_different = 0;  // whose bits differ; of other types, whose values do
  // The largest |a - b|, infinite where one is not a number; where it is, and both values there.
  double largest = 0;
  std::vector<int64_t> index;
  double value_a = 0, value_b = 0;
  double relative_norm = 0;  // |a - b| / |a| over the tensor; infinite where a is 0
};

// A field of the manifest that differs; "" for a value that is not there.
struct FieldDifference {
  enum class Kind { kNumber, kFact, kSpec, kSave };  // kSave: who saved it, and how
  Kind kind = Kind::kNumber;
  std::string name, a, b;
};

struct DiffReport {
  int64_t num_tensors = 0;  // of both together
  int64_t num_elements = 0;
  std::vector<TensorDifference> tensors;  // that differ, by key
  std::vector<FieldDifference> fields;
  // True if both hold the same state: tensors and numbers. Facts, the job and the layout may
  // differ.
  bool same_state = false;
};

// Errors: a manifest or a file cannot be read.
StatusOr<DiffReport> Diff(const DiffArgs& args);

}  // namespace mt::checkpoint
