// Device memory comes from mmap instead of the heap: page-aligned, zeroed on first touch by the
// thread that uses it, and with transparent huge pages for large buffers. Streams and events have
// nothing to do, because every call has finished when it returns.
#include "kernels/cpu/cpu_device.h"

#include <cstring>
#include <string>
#include <sys/mman.h>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "kernels/cpu/cpu_mark_ring.h"
#include "kernels/cpu/cpu_span_clock.h"

namespace mt::kernels::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kCopyGrain = int64_t{1} << 20;  // bytes that justify one more thread

// A buffer of anonymous pages: page-aligned, zeroed by the kernel on first touch, huge pages if the
// buffer is large enough.
class CpuBuffer final : public DeviceBuffer {
 public:
  CpuBuffer(void* data, int64_t bytes, int64_t mapped)
      : data_(data), bytes_(bytes), mapped_(mapped) {}
  ~CpuBuffer() override { munmap(data_, static_cast<size_t>(mapped_)); }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  void* const data_;
  const int64_t bytes_, mapped_;
};

class CpuEvent final : public Event {
 public:
  void Record(Stream&) override {}
  void Synchronize() override {}
  bool IsDone() override { return true; }
};

class CpuStream final : public Stream {
 public:
  void Wait(Event&) override {}
  void Synchronize() override {}
};

}  // namespace

CpuDevice::CpuDevice(ThreadPool* pool, std::string description)
    : pool_(pool), description_(std::move(description)) {}

std::unique_ptr<DeviceBuffer> CpuDevice::Allocate(int64_t bytes, MemoryKind /*kind*/) {
  CHECK_GE(bytes, 0);
  const int64_t mapped =
      base::RoundUp(bytes > 0 ? bytes : 1, bytes >= kHugePage ? kHugePage : 4096);
  void* data = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {  // NOLINT(performance-no-int-to-ptr): the C library's macro
    throw DeviceMemoryError("cpu: no memory for a buffer of " + std::to_string(bytes) + " bytes");
  }
  // Only advice: where transparent huge pages are off, normal pages are used.
  if (mapped >= kHugePage) madvise(data, static_cast<size_t>(mapped), MADV_HUGEPAGE);
  return std::make_unique<CpuBuffer>(data, bytes, mapped);
}

std::unique_ptr<Stream> CpuDevice::CreateStream(StreamPriority /*priority*/) {
  return std::make_unique<CpuStream>();
}

std::unique_ptr<Event> CpuDevice::CreateEvent() { return std::make_unique<CpuEvent>(); }

std::unique_ptr<MarkRing> CpuDevice::CreateMarkRing(int64_t capacity, const base::Clock* clock) {
  return std::make_unique<CpuMarkRing>(capacity, clock);
}

std::unique_ptr<SpanClock> CpuDevice::CreateSpanClock(int64_t capacity, const base::Clock* clock) {
  return std::make_unique<CpuSpanClock>(capacity, clock);
}

void CpuDevice::Copy(Stream& /*stream*/, void* to, const void* from, int64_t bytes) {
  pool_->ForRanges(bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void CpuDevice::Zero(Stream& /*stream*/, void* to, int64_t bytes) {
  pool_->ForRanges(bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(to) + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace mt::kernels::cpu
