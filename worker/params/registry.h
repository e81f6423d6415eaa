// The list of a model chunk's parameters: name, shapes, region, initial value, weight decay.
// Declared once by the model; it feeds initialisation, the flat buffers, ZeRO's slices and
// checkpoints. Names are part of the checkpoint format (worker/checkpoint/FORMAT.md), so they never
// change.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/runs.h"
#include "kernels/core/tensor.h"

namespace mt::params {

// Where a parameter lies in the flat buffers, in this order. What holds for a whole region (decay,
// who reduces it, how the norm counts it) is a property of the region, never of an element.
enum class Region : uint8_t {
  kMatrix,            // cut into buckets at matrix borders, last layer first
  kWordTable,         // a bucket of its own
  kShardedVector,     // vectors that tensor parallelism cuts (biases of column-parallel layers)
  kReplicatedVector,  // vectors that every tensor rank holds whole (norms, row-parallel biases)
  kPositionTable,
};
inline constexpr int kNumRegions = 5;

enum class InitKind : uint8_t { kNormal, kZero, kOne };

// Index of a parameter in its registry, in the order of registration.
enum class ParamId : int32_t { kNone = -1 };

// Rows or columns that come in units (the channels of a head), each stored larger than it is: its
// last `stored` - `size` are zero.
struct PaddedUnits {
  int dim = 0;  // 0: rows, 1: columns
  int64_t size = 0;
  int64_t stored = 0;
  friend bool operator==(const PaddedUnits&, const PaddedUnits&) = default;
};

struct ParamSpec {
  std::string name;      // "layers.3.attention.q.weight"
  kernels::Shape shape;  // logical, unpadded, global: [out, in], [rows, h] or [n]
  // As this rank holds it: a part of the logical tensor that begins at `begin` (tensor parallelism
  // cuts rows or columns), and padding, which is zero: rows behind its end, or of `units`.
  kernels::Shape stored;
  std::array<int64_t, 2> begin = {0, 0};
  std::optional<PaddedUnits> units;  // the part is whole units
  Region region = Region::kMatrix;
  InitKind init = InitKind::kZero;
  double std = 0;      // of kNormal
  bool decay = false;  // see DecaysByMegatronRule
  int layer = -1;      // global layer number; -1: outside the layers
  int chunk = 0;       // model chunk of this pipeline stage (virtual stages)
  // Every tensor rank holds it whole and alike, but computes only its part of the gradient's sum
  // (norm gains under sequence parallelism, QK gains over the rank's own heads).
  bool partial = false;
  // A copy of a parameter that another stage owns (the word table of a tied head): trained here
  // too, but neither counted in norms nor saved.
  bool copy = false;
  // Stored right behind the parameter added before it, without padding or a bucket border between
  // them, so that both are one tensor for the kernels (q, k, v). Same region, chunk, layer,
  // columns and flags.
  bool joined = false;

  // The logical part of what this rank holds: `stored` without the padding. May have no rows.
  kernels::Shape Held() const;
  // Where the elements of Held() lie in `stored`, both row-major.
  base::Runs Places() const;
};

// Megatron-LM: biases and one-dimensional parameters have no weight decay, all others do, the word
// and position tables included.
bool DecaysByMegatronRule(std::string_view name, const kernels::Shape& shape);

// Filled by one thread before training, constant afterwards (then thread-safe).
class Registry {
 public:
  // From now on Add sets spec.chunk to this.
  void BeginChunk(int chunk) { chunk_ = chunk; }
  // CHECKs what only a bug can break: a doubled name, two names with one hash (initial values would
  // repeat), a stored part that lies beyond the logical columns or is no whole units, a `joined`
  // parameter that does not fit its predecessor.
  ParamId Add(ParamSpec spec);

  const std::vector<ParamSpec>& params() const { return params_; }
  int64_t size() const { return static_cast<int64_t>(params_.size()); }
  const ParamSpec& operator[](ParamId id) const;
  std::optional<ParamId> Find(std::string_view name) const;
  // Elements of the logical shapes: the model's parameter count.
  int64_t NumElements() const;

 private:
  std::optional<int> chunk_;
  std::vector<ParamSpec> params_;
  std::unordered_map<uint64_t, ParamId> by_hash_;
};

}  // namespace mt::params
