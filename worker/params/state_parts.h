// Which rectangles of a parameter's optimizer state this replica has, in coordinates of the logical
// tensor: what initial values and checkpoints go through, whatever the layout. A slice of a bucket
// may begin and end within a row, so a matrix has up to three: the rest of a row, whole rows, the
// beginning of a row.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker/params/param_store.h"

namespace mt::params {

enum class PartsOf : uint8_t {
  kUpdatedState,  // all that this replica keeps: what it initialises and loads
  kOwnSlices,     // what it answers for: over the replicas each element once, what it saves
};

struct StatePart {
  std::array<int64_t, 2> begin = {0, 0};  // in the logical tensor: row, column
  kernels::Shape shape;                   // [rows, columns] or [rows]
  // Element i of the box, row-major, is element places.At(i) of each tensor below; what lies
  // between is padding.
  base::Runs places;
  kernels::Tensor master;  // flat, from the box's first element to its last; so are the others
  kernels::Tensor m, v;    // absent where the optimizer has none
};

// In rising order; none where this replica has nothing of the parameter. Padding is left out.
std::vector<StatePart> StateParts(const ParamStore& store, ParamId id, PartsOf which);

}  // namespace mt::params
