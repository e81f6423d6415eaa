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

// The section of the flat buffers in which a parameter lies, in this order. Properties that hold
// for a whole region (decay, who reduces it, how the norm counts it) belong to the region, never to
// an element.
enum class Region : uint8_t {
  kMatrix,            // divided into buckets between matrices, last layer first
  kWordEmbedding,     // a bucket of its own
  kShardedVector,     // vectors sharded over tensor ranks (biases of column-parallel layers)
  kReplicatedVector,  // vectors that every tensor rank holds whole (norms, row-parallel biases)
  kPositionTable,
};
inline constexpr int kNumRegions = 5;

enum class InitKind : uint8_t { kNormal, kZero, kOne };

// Index of a parameter in its registry, in the order of registration.
enum class ParamId : int32_t { kNone = -1 };

// Rows or columns that come in units (the channels of an attention head), each stored with zero
// padding: of its `stored` rows or columns the first `size` are used, the others are zero.
struct PaddedUnits {
  int dim = 0;         // 0: rows, 1: columns
  int64_t size = 0;    // used, in rows or columns
  int64_t stored = 0;  // with padding; >= size
  friend bool operator==(const PaddedUnits&, const PaddedUnits&) = default;
};

// Everything the engine knows about one parameter. Filled by the model and constant after
// Registry::Add.
struct ParamSpec {
  std::string name;      // "layers.3.attention.q.weight"
  kernels::Shape shape;  // logical, unpadded, global: [out, in], [rows, h] or [n]
  // The shape that this rank holds: a block of the logical tensor that begins at `begin` (tensor
  // parallelism shards rows or columns), plus zero padding, either rows behind the end of the
  // tensor or the padding of `units`.
  kernels::Shape stored;
  std::array<int64_t, 2> begin = {0, 0};
  // Tensor parallelism shards columns, however many ranks there are, so that those of another
  // layout may each want some columns of all rows (checkpoints store such a matrix in parts).
  bool by_columns = false;
  std::optional<PaddedUnits> units;  // set: the block consists of whole units
  Region region = Region::kMatrix;
  InitKind init = InitKind::kZero;
  double std = 0;      // standard deviation, for kNormal
  bool decay = false;  // see DecaysByMegatronRule
  int layer = -1;      // global layer number; -1: outside the layers
  int chunk = 0;       // model chunk (virtual pipeline stage)
  // Every tensor rank holds the same whole parameter but computes only its part of the gradient,
  // which must be summed over the tensor group (norm gains under sequence parallelism, QK gains
  // over the rank's own heads).
  bool partial = false;
  // A copy of a parameter owned by another pipeline stage (the word table of a tied head). It is
  // trained here too, but neither counted in norms nor saved.
  bool copy = false;
  // Stored directly behind the parameter added before it, in the same bucket and without padding
  // between them, so that kernels see both as one tensor (q, k, v). Region, chunk, layer, number of
  // columns and flags must be equal.
  bool joined = false;

  // The shape of the logical elements that this rank holds: `stored` without the padding. May have
  // no rows.
  kernels::Shape Held() const;
  // Maps row-major elements of Held() to row-major elements of `stored`.
  base::Runs Places() const;
};

// Megatron-LM's rule: biases and one-dimensional parameters have no weight decay; all others do,
// including the word and position tables.
bool DecaysByMegatronRule(std::string_view name, const kernels::Shape& shape);

// Filled by one thread before training, constant afterwards (then thread-safe).
class Registry {
 public:
  // Sets the chunk of all parameters added after this call.
  void BeginChunk(int chunk) { chunk_ = chunk; }
  // Appends a parameter and returns its id. CHECKs what only a bug can break: a duplicate name, two
  // names with the same hash (their initial values would be equal), a stored block that exceeds the
  // logical columns, has some of them without `by_columns`, or is not made of whole units, a
  // `joined` parameter that does not fit its predecessor.
  ParamId Add(ParamSpec spec);

  const std::vector<ParamSpec>& params() const { return params_; }
  int64_t size() const { return static_cast<int64_t>(params_.size()); }
  const ParamSpec& operator[](ParamId id) const;
  // The parameter with this name, or nullopt.
  std::optional<ParamId> Find(std::string_view name) const;
  // Sum of the logical shapes' elements: the model's parameter count, without padding.
  int64_t NumElements() const;

 private:
  std::optional<int> chunk_;
  std::vector<ParamSpec> params_;
  std::unordered_map<uint64_t, ParamId> by_hash_;
};

}  // namespace mt::params
