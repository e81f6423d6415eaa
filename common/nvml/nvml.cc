// Binds NVML's symbols by dlopen and dlsym. Queries that a driver or GPU does not support leave the
// field at 0 instead of failing.
#include "common/nvml/nvml.h"

#include <array>
#include <dlfcn.h>
#include <iterator>
#include <utility>

namespace mt::nvml {
namespace {

// The part of NVML's stable ABI that is used, declared from its documentation ("NVML API
// Reference", Device Queries). Enumerations are ints.
using Device = void*;
using Return = int;
constexpr Return kSuccess = 0;
constexpr Return kDriverNotLoaded = 9;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
constexpr int kP2pOverNvLink = 2;
constexpr int kP2pStatusOk = 0;
constexpr Return kNotSupported = 3;
constexpr unsigned int kMigEnabled = 1;
constexpr unsigned int kTextBytes = 96;  // NVML's own string buffers are no longer

struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;  // percent
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

// Calls a function that the driver may not have.
template <class... Params, class... Args>
Return Ask(Return (*function)(Params...), Args... args) {
  return function == nullptr ? kNotSupported : function(args...);
}

}  // namespace

// The first seven exist in every driver; any other is nullptr where the driver lacks it.
struct Library::Functions {
  Return (*init)();
  Return (*shutdown)();
  const char* (*error_string)(Return);
  Return (*count)(unsigned int*);
  Return (*by_index)(unsigned int, Device*);
  Return (*uuid)(Device, char*, unsigned int);
  Return (*memory)(Device, MemoryInfo*);
  Return (*driver_version)(char*, unsigned int);
  Return (*name)(Device, char*, unsigned int);
  Return (*pci)(Device, PciInfo*);
  Return (*compute_capability)(Device, int*, int*);
  Return (*power_limit)(Device, unsigned int*);  // milliwatts
  Return (*power)(Device, unsigned int*);        // milliwatts
  Return (*max_clock)(Device, int, unsigned int*);
  Return (*clock)(Device, int, unsigned int*);
  Return (*temperature)(Device, int, unsigned int*);
  Return (*utilization)(Device, Utilization*);
  Return (*throttle_reasons)(Device, unsigned long long*);
  Return (*p2p_status)(Device, Device, int, int*);
  Return (*mig_mode)(Device, unsigned int*,
                     unsigned int*);  // current mode; mode after the next reset

  // Fills the table. Returns the first required symbol that is missing, or nullptr.
  const char* Resolve(void* handle);
};

const char* Library::Functions::Resolve(void* handle) {
  const std::pair<const char*, void*> table[] = {
      {"nvmlInit_v2", &init},
      {"nvmlShutdown", &shutdown},
      {"nvmlErrorString", &error_string},
      {"nvmlDeviceGetCount_v2", &count},
      {"nvmlDeviceGetHandleByIndex_v2", &by_index},
      {"nvmlDeviceGetUUID", &uuid},
      {"nvmlDeviceGetMemoryInfo", &memory},
      {"nvmlSystemGetDriverVersion", &driver_version},
      {"nvmlDeviceGetName", &name},
      {"nvmlDeviceGetPciInfo_v3", &pci},
      {"nvmlDeviceGetCudaComputeCapability", &compute_capability},
      {"nvmlDeviceGetEnforcedPowerLimit", &power_limit},
      {"nvmlDeviceGetPowerUsage", &power},
      {"nvmlDeviceGetMaxClockInfo", &max_clock},
      {"nvmlDeviceGetClockInfo", &clock},
      {"nvmlDeviceGetTemperature", &temperature},
      {"nvmlDeviceGetUtilizationRates", &utilization},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", &throttle_reasons},
      {"nvmlDeviceGetP2PStatus", &p2p_status},
      {"nvmlDeviceGetMigMode", &mig_mode},
  };
  constexpr size_t kNeeded = 7;
  for (size_t i = 0; i < std::size(table); ++i) {
    const auto& [symbol_name, function] = table[i];
    void* const symbol = dlsym(handle, symbol_name);
    if (symbol == nullptr && i < kNeeded) return symbol_name;
    // POSIX defines the conversion from dlsym's object pointer to a function pointer this way.
    *static_cast<void**>(function) = symbol;
  }
  return nullptr;
}

StatusOr<std::unique_ptr<Library>> Library::Open(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps dlerror per thread
    return base::NotFound("no NVIDIA driver: {}", dlerror());
  }
  auto functions = std::make_unique<Functions>();
  const char* const missing = functions->Resolve(handle);
  if (missing != nullptr) {
    dlclose(handle);
    return base::NotFound("{} has no {}: the driver is too old", path, missing);
  }
  std::unique_ptr<Library> library(new Library(handle, std::move(functions)));
  RETURN_IF_ERROR(library->Start());
  return library;
}

Library::Library(void* handle, std::unique_ptr<Functions> functions)
    : handle_(handle), functions_(std::move(functions)) {}

Library::~Library() {
  if (started_) functions_->shutdown();
  dlclose(handle_);
}

Status Library::Start() {
  const Return begun = functions_->init();
  // Container images for GPUs contain the library even where the host has no driver.
  if (begun == kDriverNotLoaded)
    return base::NotFound("no NVIDIA driver: nvmlInit: {}", functions_->error_string(begun));
  if (begun != kSuccess) return base::Unavailable("nvmlInit: {}", functions_->error_string(begun));
  started_ = true;
  std::array<char, kTextBytes> version{};
  if (Ask(functions_->driver_version, version.data(), kTextBytes) == kSuccess)
    driver_version_ = version.data();
  unsigned int count = 0;
  const Return counted = functions_->count(&count);
  if (counted != kSuccess)
    return base::Unavailable("nvmlDeviceGetCount: {}", functions_->error_string(counted));
  num_gpus_ = static_cast<int>(count);
  return OkStatus();
}

Status Library::Failure(int code, const char* call, int gpu) const {
  return base::Unavailable("GPU {}: {}: {}", gpu, call, functions_->error_string(code));
}

StatusOr<void*> Library::DeviceAt(int gpu) const {
  if (gpu < 0 || gpu >= num_gpus_)
    return base::NotFound("there is no GPU {}, there are {}", gpu, num_gpus_);
  Device device = nullptr;
  const Return code = functions_->by_index(static_cast<unsigned int>(gpu), &device);
  if (code != kSuccess) return Failure(code, "nvmlDeviceGetHandleByIndex", gpu);
  return device;
}

StatusOr<Gpu> Library::Describe(int gpu) const {
  ASSIGN_OR_RETURN(const Device device, DeviceAt(gpu));
  std::array<char, kTextBytes> text{};
  const Return code = functions_->uuid(device, text.data(), kTextBytes);
  if (code != kSuccess) return Failure(code, "nvmlDeviceGetUUID", gpu);
  Gpu out{.uuid = text.data()};
  if (Ask(functions_->name, device, text.data(), kTextBytes) == kSuccess) out.name = text.data();
  PciInfo pci{};
  if (Ask(functions_->pci, device, &pci) == kSuccess) out.pci_bus_id = pci.bus_id;
  Ask(functions_->compute_capability, device, &out.compute_major, &out.compute_minor);
  MemoryInfo memory{};
  if (functions_->memory(device, &memory) == kSuccess)
    out.memory_bytes = static_cast<int64_t>(memory.total);
  unsigned int value = 0;
  if (Ask(functions_->power_limit, device, &value) == kSuccess)
    out.power_limit_watts = value * 1e-3;
  if (Ask(functions_->max_clock, device, kClockSm, &value) == kSuccess)
    out.max_sm_clock_mhz = static_cast<int>(value);
  unsigned int pending = 0;
  out.in_mig_mode =
      Ask(functions_->mig_mode, device, &value, &pending) == kSuccess && value == kMigEnabled;
  return out;
}

StatusOr<Reading> Library::Read(int gpu) const {
  ASSIGN_OR_RETURN(const Device device, DeviceAt(gpu));
  Reading out;
  MemoryInfo memory{};
  const Return code = functions_->memory(device, &memory);
  if (code != kSuccess) return Failure(code, "nvmlDeviceGetMemoryInfo", gpu);
  out.free_bytes = static_cast<int64_t>(memory.free);
  unsigned int value = 0;
  if (Ask(functions_->clock, device, kClockSm, &value) == kSuccess)
    out.sm_clock_mhz = static_cast<int>(value);
  if (Ask(functions_->clock, device, kClockMemory, &value) == kSuccess)
    out.memory_clock_mhz = static_cast<int>(value);
  if (Ask(functions_->power, device, &value) == kSuccess) out.power_watts = value * 1e-3;
  if (Ask(functions_->temperature, device, kTemperatureGpu, &value) == kSuccess)
    out.temperature_celsius = value;
  Utilization used{};
  if (Ask(functions_->utilization, device, &used) == kSuccess) out.utilization = used.gpu * 1e-2;
  unsigned long long reasons = 0;
  if (Ask(functions_->throttle_reasons, device, &reasons) == kSuccess)
    out.throttle_reasons = reasons;
  return out;
}

StatusOr<int> Library::IndexOf(const std::string& uuid) const {
  for (int gpu = 0; gpu < num_gpus_; ++gpu) {
    const auto described = Describe(gpu);
    if (described.ok() && described->uuid == uuid) return gpu;
  }
  return base::NotFound("no GPU of this host is {}", uuid);
}

bool Library::HaveNvLink(int a, int b) const {
  const auto from = DeviceAt(a), to = DeviceAt(b);
  if (!from.ok() || !to.ok() || a == b) return false;
  int status = -1;
  return Ask(functions_->p2p_status, *from, *to, kP2pOverNvLink, &status) == kSuccess &&
         status == kP2pStatusOk;
}

}  // namespace mt::nvml
