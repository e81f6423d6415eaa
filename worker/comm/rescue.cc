// Two streams under one lock.
#include "worker/comm/rescue.h"

namespace mt::comm {

Rescue::Rescue(kernels::Device* device)
    : device_(device),
      now_(device->CreateStream(kernels::StreamPriority::kHigh)),
      behind_(device->CreateStream(kernels::StreamPriority::kHigh)) {}

void Rescue::StoreNow(std::span<const Store> stores) {
  const base::MutexLock lock(&mu_);
  for (const Store& store : stores) now_->WriteValue(store.word, store.value);
}

void Rescue::StoreBehind(kernels::Event& event, std::span<const Store> stores) {
  const base::MutexLock lock(&mu_);
  behind_->Wait(event);
  for (const Store& store : stores) behind_->WriteValue(store.word, store.value);
}

void Rescue::Read(std::span<uint32_t> to, const uint32_t* words) {
  const base::MutexLock lock(&mu_);
  device_->Copy(*now_, to.data(), words, static_cast<int64_t>(to.size_bytes()));
  now_->Synchronize();
}

}  // namespace mt::comm
