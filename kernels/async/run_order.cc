// SplitMix64 (Steele et al. 2014) for the episodes and the precedence within one.
#include "kernels/async/run_order.h"

#include <algorithm>

#include "common/base/ids.h"
#include "kernels/async/stream_queues.h"

namespace mt::kernels::async {
namespace {

constexpr uint64_t kLongestEpisode = 32;

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

}  // namespace

StreamQueue* RunOrder::Draw(std::span<StreamQueue* const> ready) {
  if (left_in_episode_ == 0) {
    random_ = Mix(random_);
    episode_ = random_;
    random_ = Mix(random_);
    left_in_episode_ = 1 + random_ % kLongestEpisode;
  }
  --left_in_episode_;
  return *std::min_element(ready.begin(), ready.end(), [&](StreamQueue* a, StreamQueue* b) {
    const auto precedence = [&](const StreamQueue& queue) {
      return Mix(episode_ ^ Mix(static_cast<uint64_t>(queue.rank) * 4096U +
                                static_cast<uint64_t>(queue.ordinal)));
    };
    return precedence(*a) < precedence(*b);
  });
}

void RunOrder::Note(const StreamQueue& queue, const std::string& label) {
  ++num_calls_;
  hash_ = base::Hash64(label, Mix(hash_ ^ (static_cast<uint64_t>(queue.rank) * 4096U +
                                           static_cast<uint64_t>(queue.ordinal))));
}

}  // namespace mt::kernels::async
