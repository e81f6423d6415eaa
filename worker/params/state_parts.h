// The rectangles of a parameter's optimizer state that this replica has, in coordinates of the
// logical tensor. Initial values and checkpoints are written in these, whatever the parallel
// layout. A slice of a bucket may begin and end within a row, so a matrix has up to three
// rectangles: the end of a row, whole rows, the beginning of a row.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker/params/param_store.h"

namespace mt::params {

enum class PartsOf : uint8_t {
  kUpdatedState,  // everything this replica keeps: used to initialise and to load
  kOwnSlices,     // each element on one replica only: used to save
};

// One rectangle and the storage of its elements.
struct StatePart {
  std::array<int64_t, 2> begin = {0, 0};  // in the logical tensor: row, column
  kernels::Shape shape;                   // [rows, columns] or [rows]
  // Element i of the rectangle, row-major, is element places.At(i) of each tensor below; elements
  // between them are padding.
  base::Runs places;
  kernels::Tensor master;  // 1-D, from the rectangle's first element to its last; m, v alike
  kernels::Tensor m, v;    // empty where the optimizer has none
};

// The rectangles in ascending order, without padding. Empty where this replica holds nothing of the
// parameter.
std::vector<StatePart> StateParts(const ParamStore& store, ParamId id, PartsOf which);

}  // namespace mt::params
