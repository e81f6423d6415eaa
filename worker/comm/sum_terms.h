// The terms of a reduce-scatter that a group leaves where they arrive, for a kernel of the caller's
// that adds them anyway.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/dtype.h"

namespace mt::comm {

// Used by the thread that calls the group.
class SumTerms {
 public:
  virtual ~SumTerms() = default;
  // Whether there is room for those of a sum over `bytes` bytes of input; the same on all members.
  virtual bool Fit(int64_t bytes) const = 0;
  // Where they lie, [shard_count] each, in the order in which the group would add them: this
  // member's own within `in`, the others' until the group's next sum begins.
  virtual std::vector<const void*> Of(const void* in, int64_t shard_count,
                                      kernels::DType dtype) const = 0;

 protected:
  SumTerms() = default;
};

}  // namespace mt::comm
