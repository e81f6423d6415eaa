// Memory of a GPU that other processes' GPUs write, by CUDA's interprocess handles.
#pragma once

#include <memory>

#include "kernels/core/device.h"

namespace mt::kernels::cuda {

std::unique_ptr<PeerMemory> MakePeerMemory(int ordinal);

}  // namespace mt::kernels::cuda
