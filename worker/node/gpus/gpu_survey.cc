// Applies the rules of gpu_offer.h to every probe and compares with what is offered.
#include "worker/node/gpus/gpu_survey.h"

#include <utility>

#include "common/base/log.h"
#include "worker/node/gpus/gpu_offer.h"

namespace mt::node {

GpuSurvey::GpuSurvey(Deps deps) : deps_(std::move(deps)) {}

GpuSurvey::~GpuSurvey() { deps_.loop->Cancel(timer_); }

void GpuSurvey::Start() {
  if (deps_.probe == nullptr || deps_.wanted == kNoGpus) return;
  timer_ = deps_.loop->After(deps_.interval, [this] { Look(); });
}

void GpuSurvey::Finish() {
  finished_ = true;
  deps_.loop->Cancel(std::exchange(timer_, EventLoop::kNoTimer));
}

void GpuSurvey::Look() {
  timer_ = EventLoop::kNoTimer;
  deps_.probe->Probe([this](const StatusOr<GpuInventory>& found) { OnProbed(found); });
}

void GpuSurvey::OnProbed(const StatusOr<GpuInventory>& found) {
  if (finished_) return;
  timer_ = deps_.loop->After(deps_.interval, [this] { Look(); });
  const StatusOr<GpuInventory> usable = deps_.module ? NeedModule(found, deps_.module()) : found;
  if (!usable.ok()) return;  // keep the news: a broken driver shows in the ranks
  const GpuOffer now = OfferGpus(deps_.wanted, usable, [](int /*numa_node*/) { return ""; });
  std::string uuids;
  for (const GpuSlot& gpu : now.gpus) {
    if (deps_.offered.contains(gpu.device.uuid)) continue;
    uuids += (uuids.empty() ? "" : ", ") + gpu.device.uuid;
  }
  std::string news;
  if (!uuids.empty()) {
    news = fmt::format(
        "{} can be used now, but not when this worker started: start it again to offer what is new",
        uuids);
  }
  if (news == news_) return;
  news_ = std::move(news);
  if (!news_.empty()) log::Warn("a GPU that is not offered can be used now", {{"gpus", uuids}});
  deps_.changed();
}

}  // namespace mt::node
