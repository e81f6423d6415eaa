// Search of the module's two places, and the oldest versions of cuDNN and cuBLASLt that the backend
// accepts.
#include "common/gpu/cuda_module.h"

#include <filesystem>

namespace mt::gpu {
namespace {

// Minimum versions: the grouped-query attention graphs need cuDNN 9.14, the cuBLASLt calls CUDA 13.
constexpr size_t kOldestCudnn = 91400, kOldestCublas = 130000;

// Both libraries encode versions alike: 91400 is 9.14.0.
std::string Version(size_t v) { return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100); }

}  // namespace

StatusOr<std::string> FindCudaModule(const std::string& folder) {
  const std::filesystem::path programs(folder);
  const auto beside = programs / kCudaModuleName;
  const auto in_lib = programs.parent_path() / "lib" / kCudaModuleName;
  std::error_code ignored;  // a path that cannot be examined counts as absent
  if (std::filesystem::exists(beside, ignored)) return beside.string();
  if (std::filesystem::exists(in_lib, ignored)) return in_lib.string();
  return base::NotFound("no module at {}, {}; install {} there (a build with MT_CUDA=ON makes it)",
                        beside.string(), in_lib.string(), kCudaModuleName);
}

std::string CapabilityFault(const std::string& gpu, int major, int minor) {
  if (major == 8 || (major == 9 && minor == 0)) return "";
  return fmt::format("{} has compute capability {}.{}; the CUDA backend is built for 8.x and 9.0",
                     gpu, major, minor);
}

std::string LibraryFault(size_t cudnn, size_t cublas) {
  if (cudnn < kOldestCudnn) {
    return fmt::format("cudnnGetVersion: cuDNN {} is too old; install {} or newer", Version(cudnn),
                       Version(kOldestCudnn));
  }
  if (cublas < kOldestCublas) {
    return fmt::format("cublasLtGetVersion: cuBLASLt {} is too old; install {} or newer (CUDA {})",
                       Version(cublas), Version(kOldestCublas), kOldestCublas / 10000);
  }
  return "";
}

}  // namespace mt::gpu
