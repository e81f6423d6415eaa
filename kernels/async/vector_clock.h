// A vector clock over streams: how many calls of each stream come before a point in the program's
// own order, whatever the order in which they ran (Fidge 1988, Mattern 1989).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mt::kernels::async {

class VectorClock {
 public:
  // Counts one more call of the stream and returns its number, from 1 on.
  int64_t Tick(size_t stream) {
    if (counts_.size() <= stream) counts_.resize(stream + 1, 0);
    return ++counts_[stream];
  }
  // What comes before either comes before this.
  void Merge(const VectorClock& other) {
    if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size(), 0);
    for (size_t i = 0; i < other.counts_.size(); ++i)
      counts_[i] = std::max(counts_[i], other.counts_[i]);
  }
  // Number of the stream's last call before this point; 0: none.
  int64_t NumberOf(size_t stream) const { return stream < counts_.size() ? counts_[stream] : 0; }
  // Whether call `number` of the stream comes before this point.
  bool Covers(size_t stream, int64_t number) const { return number <= NumberOf(stream); }
  bool Covers(const VectorClock& other) const {
    for (size_t i = 0; i < other.counts_.size(); ++i) {
      if (!Covers(i, other.counts_[i])) return false;
    }
    return true;
  }

 private:
  std::vector<int64_t> counts_;  // by stream; streams behind the end have none
};

}  // namespace mt::kernels::async
