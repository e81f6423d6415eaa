// A substitute for libnvidia-ml.so: two GPUs with fixed facts, the second of which refuses to
// report its clocks. $MT_FAKE_NVML selects a failure: "broken", nvmlInit_v2 fails, as after an
// update of a loaded driver; "unloaded", the library is installed without a driver; "hang",
// nvmlInit_v2 never returns; "crash", it ends the process; "sick", the second GPU has fallen off
// the bus; "mig", the first GPU is in MIG mode (the second has no such mode). $MT_FAKE_NVML_USED
// names a file with the bytes in use on the first GPU.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakeUtilization {
  unsigned int gpu, memory;
};
struct FakePci {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

int kGpus[2] = {0, 1};
int IndexOf(void* device) { return *static_cast<int*>(device); }

int CopyText(const char* from, char* to, unsigned int bytes) {
  if (std::strlen(from) >= bytes) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  std::strcpy(to, from);
  return 0;
}

constexpr int kNotSupported = 3;
constexpr int kNotLoaded = 9;
constexpr int kGpuIsLost = 15;
constexpr int kMismatch = 18;

bool Asked(const char* for_what) {
  const char* how = std::getenv("MT_FAKE_NVML");  // NOLINT(concurrency-mt-unsafe): set before
  return how != nullptr && std::strcmp(how, for_what) == 0;
}

unsigned long long UsedBytes(int gpu) {
  constexpr unsigned long long kIdle = 1'000'000'000;
  const char* path = std::getenv("MT_FAKE_NVML_USED");  // NOLINT(concurrency-mt-unsafe): as above
  FILE* file = path == nullptr || gpu != 0 ? nullptr : std::fopen(path, "re");
  if (file == nullptr) return kIdle;
  unsigned long long used = kIdle;
  const bool read = std::fscanf(file, "%llu", &used) == 1;
  std::fclose(file);
  return read ? used : kIdle;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  while (Asked("hang")) ::pause();
  if (Asked("crash")) std::raise(SIGSEGV);
  if (Asked("unloaded")) return kNotLoaded;
  return Asked("broken") ? kMismatch : 0;
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) {
  switch (code) {
    case kMismatch:
      return "Driver/library version mismatch";
    case kNotLoaded:
      return "Driver Not Loaded";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Not Supported";
  }
}
int nvmlSystemGetDriverVersion(char* out, unsigned int n) { return CopyText("580.1.2", out, n); }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index == 1 && Asked("sick")) return kGpuIsLost;
  *device = &kGpus[index];
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned int n) {
  return CopyText(IndexOf(device) == 0 ? "GPU-aaaa" : "GPU-bbbb", out, n);
}
int nvmlDeviceGetName(void* /*device*/, char* out, unsigned int n) {
  return CopyText("NVIDIA H200", out, n);
}
int nvmlDeviceGetPciInfo_v3(void* device, FakePci* pci) {
  pci->bus = IndexOf(device) == 0 ? 0x18 : 0x2a;
  return CopyText(IndexOf(device) == 0 ? "00000000:18:00.0" : "00000000:2A:00.0", pci->bus_id, 32);
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  const bool unfit = Asked("unfit") && IndexOf(device) == 0;
  *major = unfit ? 7 : 9;
  *minor = unfit ? 5 : 0;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, FakeMemory* memory) {
  const unsigned long long used = UsedBytes(IndexOf(device));
  *memory = {150'000'000'000, 150'000'000'000 - used, used};
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void* /*device*/, unsigned int* milliwatts) {
  *milliwatts = 700'000;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* /*device*/, unsigned int* milliwatts) {
  *milliwatts = 412'500;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void* /*device*/, int type, unsigned int* mhz) {
  *mhz = type == 1 ? 1980 : 0;
  return type == 1 ? 0 : kNotSupported;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned int* mhz) {
  if (IndexOf(device) == 1) return kNotSupported;
  *mhz = type == 1 ? 1755 : type == 2 ? 3201 : 0;
  return 0;
}
int nvmlDeviceGetTemperature(void* /*device*/, int sensor, unsigned int* celsius) {
  *celsius = 41;
  return sensor == 0 ? 0 : kNotSupported;
}
int nvmlDeviceGetUtilizationRates(void* device, FakeUtilization* used) {
  if (IndexOf(device) == 1) return kNotSupported;
  *used = {87, 12};
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* /*device*/, unsigned long long* reasons) {
  *reasons = 4;
  return 0;
}
int nvmlDeviceGetP2PStatus(void* a, void* b, int capability, int* status) {
  *status = IndexOf(a) != IndexOf(b) && capability == 2 ? 0 : 5;
  return 0;
}
#ifndef MT_FAKE_WITHOUT_MIG
int nvmlDeviceGetMigMode(void* device, unsigned int* current, unsigned int* pending) {
  if (IndexOf(device) == 1) return kNotSupported;
  *current = Asked("mig") ? 1 : 0;
  *pending = 0;
  return 0;
}
#endif

}  // extern "C"
