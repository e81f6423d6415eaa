// The loader of the CUDA module: dlopen, one symbol, and its faults as Status. Free of CUDA, so
// every program links it.
#include "kernels/cuda/module.h"

#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>

#include "common/gpu/cuda_module.h"

namespace mt::kernels::cuda {
namespace {

// Returns the module's path: the configured one, else beside this program or in ../lib.
StatusOr<std::string> ModulePath(const CudaConfig& config) {
  std::error_code error;
  if (!config.module_path.empty()) {
    if (std::filesystem::exists(config.module_path, error)) return config.module_path;
    return base::NotFound("CUDA backend: no module at {}", config.module_path);
  }
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  auto found = gpu::FindCudaModule(program.parent_path().string());
  if (!found.ok()) return base::NotFound("CUDA backend: {}", base::Message(found.status()));
  return found;
}

StatusOr<MakeBackendFunction*> LoadModule(const CudaConfig& config) {
  ASSIGN_OR_RETURN(const std::string path, ModulePath(config));
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return base::FailedPrecondition("CUDA backend: {}; are CUDA's libraries installed here?",
                                    dlerror());
  }
  void* const symbol = dlsym(module, kMakeBackendSymbol);
  if (symbol == nullptr)
    return base::FailedPrecondition("CUDA backend: {} is not a module of this program", path);
  return reinterpret_cast<MakeBackendFunction*>(symbol);
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(const CudaConfig& config) {
  const auto make = LoadModule(config);
  if (!make.ok()) return make.status();
  BackendFault fault;
  std::unique_ptr<Backend> backend((*make)(MT_CUDA_MODULE_VERSION, config, &fault));
  if (backend != nullptr) return backend;
  if (!fault.out_of_memory) return base::FailedPrecondition("CUDA backend: {}", fault.text);
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "CUDA backend: {}; not even a context and its libraries find room: another "
                     "process holds this GPU's memory (nvidia-smi lists them): end it, or use "
                     "another GPU",
                     fault.text);
}

}  // namespace mt::kernels::cuda
