// One probe at a time serves all waiters; each waiter has its own deadline.
#include "worker/node/gpus/gpu_guard.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/log.h"

namespace mt::node {
namespace {

// What a GPU may hold beyond its idle share and still be free: small changes by other users, but
// less than a CUDA context.
constexpr int64_t kSlackBytes = int64_t{128} << 20;
// The idle share of a GPU that was never seen without a rank.
constexpr int64_t kAssumedIdleBytes = int64_t{1} << 30;

double GiB(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(1 << 30); }

const GpuDevice* FindDevice(const GpuInventory& inventory, const std::string& uuid) {
  const auto found = std::ranges::find(inventory.devices, uuid, &GpuDevice::uuid);
  return found == inventory.devices.end() ? nullptr : &*found;
}

}  // namespace

GpuGuard::GpuGuard(Deps deps, const std::vector<GpuSlot>& gpus) : deps_(std::move(deps)) {
  for (const GpuSlot& gpu : gpus) {
    gpus_[gpu.device.uuid] = {.idle_bytes = gpu.device.memory_bytes - gpu.device.free_bytes,
                              .out_of_order = {}};
  }
}

GpuGuard::~GpuGuard() { deps_.loop->Cancel(timer_); }

void GpuGuard::Occupied(const std::string& uuid) {
  const auto found = gpus_.find(uuid);
  if (found != gpus_.end()) found->second.idle_bytes = kAssumedIdleBytes;
}

std::string GpuGuard::OutOfOrder(const std::string& uuid) const {
  const auto found = gpus_.find(uuid);
  return found == gpus_.end() ? "" : found->second.out_of_order;
}

void GpuGuard::AwaitFree(const std::vector<std::string>& uuids, std::function<void()> done) {
  Waiter waiter{
      .uuids = {}, .until = deps_.clock->Now() + deps_.limits.device_free, .done = std::move(done)};
  for (const std::string& uuid : uuids) {
    if (gpus_.contains(uuid)) waiter.uuids.insert(uuid);
  }
  if (waiter.uuids.empty() || finished_ || deps_.probe == nullptr) {
    deps_.loop->Post(std::move(waiter.done));
    return;
  }
  waiters_.push_back(std::move(waiter));
  Look();
}

void GpuGuard::Finish() {
  finished_ = true;
  deps_.loop->Cancel(std::exchange(timer_, EventLoop::kNoTimer));
  for (Waiter& waiter : waiters_) deps_.loop->Post(std::move(waiter.done));
  waiters_.clear();
}

void GpuGuard::Look() {
  if (looking_ || finished_) return;
  looking_ = true;
  deps_.loop->Cancel(std::exchange(timer_, EventLoop::kNoTimer));
  deps_.probe->Probe([this](const StatusOr<GpuInventory>& found) { OnProbed(found); });
}

std::string GpuGuard::WhyNotFree(const std::string& uuid,
                                 const StatusOr<GpuInventory>& found) const {
  if (!found.ok()) return base::Message(found.status());
  const GpuDevice* device = FindDevice(*found, uuid);
  if (device == nullptr) return "the driver does not show it any more";
  if (!device->error.empty()) return device->error;
  const int64_t held = device->memory_bytes - device->free_bytes - gpus_.at(uuid).idle_bytes;
  if (held <= kSlackBytes) return "";
  return fmt::format("{:.1f} GiB of its memory are still held after its ranks have ended",
                     GiB(held));
}

void GpuGuard::OnProbed(const StatusOr<GpuInventory>& found) {
  looking_ = false;
  if (finished_) return;
  SettleWaiters(found);
  bool better = false;
  for (auto& [uuid, gpu] : gpus_) {
    if (gpu.out_of_order.empty() || !WhyNotFree(uuid, found).empty()) continue;
    log::Info("a GPU is in order again", {{"gpu", uuid}});
    gpu.out_of_order.clear();
    better = true;
  }
  if (better) deps_.changed();
  Schedule();
}

void GpuGuard::SettleWaiters(const StatusOr<GpuInventory>& found) {
  bool worse = false;
  for (Waiter& waiter : waiters_) {
    std::erase_if(waiter.uuids,
                  [&](const std::string& uuid) { return WhyNotFree(uuid, found).empty(); });
    if (deps_.clock->Now() < waiter.until) continue;
    for (const std::string& uuid : std::exchange(waiter.uuids, {})) {
      std::string& out_of_order = gpus_.at(uuid).out_of_order;
      worse |= out_of_order.empty();
      out_of_order = WhyNotFree(uuid, found);
      log::Error("a GPU is out of order", {{"gpu", uuid}, {"why", out_of_order}});
    }
  }
  // The coordinator must learn that a slot is out of order before it learns that its ranks are
  // gone.
  if (worse) deps_.changed();
  std::vector<Waiter> settled;
  const auto rest = std::stable_partition(waiters_.begin(), waiters_.end(),
                                          [](const Waiter& w) { return !w.uuids.empty(); });
  std::move(rest, waiters_.end(), std::back_inserter(settled));
  waiters_.erase(rest, waiters_.end());
  for (Waiter& waiter : settled) deps_.loop->Post(std::move(waiter.done));
}

void GpuGuard::Schedule() {
  const bool out_of_order = std::any_of(
      gpus_.begin(), gpus_.end(), [](const auto& gpu) { return !gpu.second.out_of_order.empty(); });
  if (waiters_.empty() && !out_of_order) return;
  const auto interval =
      waiters_.empty() ? deps_.limits.device_probe_out_of_order : deps_.limits.device_probe;
  timer_ = deps_.loop->After(interval, [this] {
    timer_ = EventLoop::kNoTimer;
    Look();
  });
}

}  // namespace mt::node
