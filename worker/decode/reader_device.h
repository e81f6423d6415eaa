// Where a reader of a checkpoint computes: the CPU, or a GPU of this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/decode/reader_flags.h"

namespace mt::decode {

struct ReaderDevice {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Stream> stream;
};

// Makes the backend of a slot that was given to the reader.
using BackendMaker = std::function<StatusOr<std::unique_ptr<kernels::Backend>>()>;

// By `make`, or where that is empty what the flags name. Errors: those of `make`, of
// kernels::cuda::LoadCudaBackend, of kernels::cpu::MakeCpuBackend. Blocks.
StatusOr<ReaderDevice> MakeReaderDevice(const ReaderFlags& flags, const BackendMaker& make = {});

// DecodeModel's max_rows for prompts of up to `longest` tokens: on a GPU the whole prompt, up to
// 2,048 at a time.
int64_t RowsAtOnce(const ReaderFlags& flags, int64_t longest);

}  // namespace mt::decode
