#include "kernels/cuda/module.h"

#include <climits>
#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>
#include <vector>

namespace mt::kernels::cuda {
namespace {

constexpr char kModuleName[] = "libmt_cuda.so";

// Where the module may lie: beside this program, then in ../lib.
std::vector<std::filesystem::path> Candidates(const CudaConfig& config) {
  if (!config.module_path.empty()) return {config.module_path};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto folder = program.parent_path();
  return {folder / kModuleName, folder.parent_path() / "lib" / kModuleName};
}

StatusOr<MakeBackendFunction*> LoadModule(const CudaConfig& config) {
  std::string looked;
  for (const auto& path : Candidates(config)) {
    if (!std::filesystem::exists(path)) {
      looked += (looked.empty() ? "" : ", ") + path.string();
      continue;
    }
    void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      return base::FailedPrecondition("CUDA backend: {}; are CUDA's libraries installed here?",
                                      dlerror());
    }
    void* const symbol = dlsym(module, kMakeBackendSymbol);
    if (symbol == nullptr) {
      return base::FailedPrecondition("CUDA backend: {} is not a module of this program",
                                      path.string());
    }
    return reinterpret_cast<MakeBackendFunction*>(symbol);
  }
  return base::NotFound(
      "CUDA backend: no module at {}; install libmt_cuda.so there (a build with MT_CUDA=ON makes "
      "it)",
      looked);
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(const CudaConfig& config) {
  const auto make = LoadModule(config);
  if (!make.ok()) return make.status();
  std::string error;
  std::unique_ptr<Backend> backend((*make)(MT_CUDA_MODULE_VERSION, config, &error));
  if (backend == nullptr) return base::FailedPrecondition("CUDA backend: {}", error);
  return backend;
}

}  // namespace mt::kernels::cuda
