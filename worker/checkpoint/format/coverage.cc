// A sweep along the first dimension in which boxes differ. Those that the sweep line cuts are kept
// in the order of the second; as long as none overlap, a new one can only meet its two neighbours
// there. Together with the sum of the volumes this says that each element is held once.
#include "worker/checkpoint/format/coverage.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace mt::checkpoint {
namespace {

int64_t Volume(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

class Sweep {
 public:
  Sweep(const BoxList& boxes, std::span<const int64_t> shape) : boxes_(boxes) {
    for (size_t i = 0; i < boxes.size(); ++i) {
      const int64_t volume = Volume(boxes.shape(i));
      if (volume == 0) continue;
      some_.push_back(i);
      // One over is enough to know that it is too much.
      covered_ = std::min(covered_ + volume, Volume(shape) + 1);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool cut = std::any_of(some_.begin(), some_.end(),
                                   [&](size_t i) { return boxes.shape(i)[d] != shape[d]; });
      if (cut) cut_.push_back(d);
    }
  }

  int64_t covered() const { return covered_; }

  Status FindOverlap() {
    std::vector<size_t> by_end = some_;
    std::ranges::sort(some_, {}, [&](size_t i) { return Begin(i, 0); });
    std::ranges::sort(by_end, {}, [&](size_t i) { return End(i, 0); });
    auto ended = by_end.begin();
    for (const size_t box : some_) {
      for (; End(*ended, 0) <= Begin(box, 0); ++ended) Remove(*ended);
      RETURN_IF_ERROR(Insert(box));
    }
    return OkStatus();
  }

 private:
  // Of a box in the nth dimension that is cut; where fewer are, all boxes are alike.
  int64_t Begin(size_t box, size_t n) const {
    return n < cut_.size() ? boxes_.offset(box)[cut_[n]] : 0;
  }
  int64_t End(size_t box, size_t n) const {
    return n < cut_.size() ? Begin(box, n) + boxes_.shape(box)[cut_[n]] : 1;
  }

  Status Insert(size_t box) {
    const auto after = line_.lower_bound(Begin(box, 1));
    if (cut_.size() > 2) {
      // Of more dimensions neighbours do not tell; weights have two.
      for (const auto& [begin, other] : line_) RETURN_IF_ERROR(Meet(box, other));
    } else {
      if (after != line_.end()) RETURN_IF_ERROR(Meet(box, after->second));
      if (after != line_.begin()) RETURN_IF_ERROR(Meet(box, std::prev(after)->second));
    }
    line_.emplace_hint(after, Begin(box, 1), box);
    return OkStatus();
  }

  void Remove(size_t box) {
    auto it = line_.lower_bound(Begin(box, 1));
    while (it->second != box) ++it;
    line_.erase(it);
  }

  Status Meet(size_t a, size_t b) const {
    for (size_t n = 0; n < cut_.size(); ++n) {
      if (Begin(a, n) >= End(b, n) || Begin(b, n) >= End(a, n)) return OkStatus();
    }
    return base::DataLoss("slices {} and {} overlap", std::min(a, b), std::max(a, b));
  }

  const BoxList& boxes_;
  std::vector<size_t> some_;  // boxes with elements, in the end as the sweep meets them
  std::vector<size_t> cut_;   // dimensions in which not every box is as long as the region
  int64_t covered_ = 0;
  std::multimap<int64_t, size_t> line_;  // boxes at the sweep line, by where they begin
};

}  // namespace

Status CheckCoveredOnce(const BoxList& boxes, std::span<const int64_t> shape) {
  Sweep sweep(boxes, shape);
  RETURN_IF_ERROR(sweep.FindOverlap());
  if (sweep.covered() == Volume(shape)) return OkStatus();
  return base::DataLoss("slices hold {} of {} elements", sweep.covered(), Volume(shape));
}

}  // namespace mt::checkpoint
