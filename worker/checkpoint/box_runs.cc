// Dimensions that the common box spans whole in both are joined with the one before them, so that
// rows are one run.
#include "worker/checkpoint/box_runs.h"

#include <algorithm>

namespace mt::checkpoint {
namespace {

// Of the element `at` in a row-major box.
int64_t LinearIndex(const std::vector<int64_t>& at, const Box& box) {
  int64_t index = 0;
  for (size_t d = 0; d < at.size(); ++d) index = index * box.shape[d] + (at[d] - box.offset[d]);
  return index;
}

}  // namespace

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box box;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (begin >= end) return std::nullopt;
    box.offset.push_back(begin);
    box.shape.push_back(end - begin);
  }
  return box;
}

BoxRuns::BoxRuns(const Box& common, const Box& from, const Box& to)
    : common_(common), from_(from), to_(to), outer_(common.shape.size()), at_(common.offset) {
  bool spanned = true;
  while (outer_ > 0 && spanned) {
    const size_t d = --outer_;
    length_ *= common.shape[d];
    spanned = common.shape[d] == from.shape[d] && common.shape[d] == to.shape[d];
  }
}

bool BoxRuns::Next(Run* run) {
  if (done_) return false;
  *run = {.from = LinearIndex(at_, from_), .to = LinearIndex(at_, to_), .count = length_};
  // An odometer over the outer dimensions.
  done_ = true;
  for (size_t d = outer_; d > 0 && done_; --d) {
    done_ = ++at_[d - 1] == common_.offset[d - 1] + common_.shape[d - 1];
    if (done_) at_[d - 1] = common_.offset[d - 1];
  }
  return true;
}

}  // namespace mt::checkpoint
