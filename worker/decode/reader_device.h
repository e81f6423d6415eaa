// Where a reader of a checkpoint computes: the CPU, or a GPU of this machine.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/decode/reader_flags.h"

namespace mt::decode {

struct ReaderDevice {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Stream> stream;
};

// Errors: kernels::cuda::LoadCudaBackend's, kernels::cpu::MakeCpuBackend's. Blocks.
StatusOr<ReaderDevice> MakeReaderDevice(const ReaderFlags& flags);

// DecodeModel's max_rows for prompts of up to `longest` tokens: on a GPU the whole prompt, up to
// 2,048 at a time.
int64_t RowsAtOnce(const ReaderFlags& flags, int64_t longest);

}  // namespace mt::decode
