// Brings slices of a model's parameters, as a rank has them, from files of another program into
// memory. Blocking; used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/loader.h"
#include "worker/hf/parameter_source.h"

namespace mt::hf {

struct LoadSlicesArgs {
  const ParameterSource* files = nullptr;
  // Of "weights/<parameter>" alone; global_shape, offset, shape, dtype (kF32 or kF64), data and
  // places as in checkpoint::LoadArgs.
  std::vector<checkpoint::SliceToLoad> slices;
  // As in checkpoint::LoadArgs.
  std::function<void(void* to, const void* from, int64_t bytes)> put;
  std::function<void(int64_t bytes)> progress;
  int64_t buffer_bytes = int64_t{64} << 20;  // of a slice, in host memory at once
};

// kNotFound: the files' model has no such parameter; kFailedPrecondition: its shape differs;
// else ParameterSource::Read's errors. Destinations are undefined after an error.
Status LoadSlices(const LoadSlicesArgs& args);

}  // namespace mt::hf
