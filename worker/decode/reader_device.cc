// Without a slot what another program has of the GPU's memory is not there for this one.
#include "worker/decode/reader_device.h"

#include <algorithm>

#include "common/base/math.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/module.h"
#include "worker/decode/decode_model.h"

namespace mt::decode {

StatusOr<ReaderDevice> MakeReaderDevice(const ReaderFlags& flags, const BackendMaker& make) {
  ReaderDevice made;
  if (make) {
    ASSIGN_OR_RETURN(made.backend, make());
  } else if (flags.device == "gpu") {
    ASSIGN_OR_RETURN(made.backend, kernels::cuda::LoadCudaBackend({}));
  } else {
    ASSIGN_OR_RETURN(made.backend, kernels::cpu::MakeCpuBackend({.num_threads = flags.threads}));
  }
  made.stream = made.backend->device().CreateStream(kernels::StreamPriority::kLow);
  return made;
}

int64_t RowsAtOnce(const ReaderFlags& flags, int64_t longest) {
  constexpr int64_t kMost = 2048;
  if (flags.device != "gpu") return DecodeModel::kMaxRows;
  const int64_t rows = std::clamp(longest, DecodeModel::kMaxRows, kMost);
  return base::RoundUp(rows, DecodeModel::kMaxRows);
}

}  // namespace mt::decode
