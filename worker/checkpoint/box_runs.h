// The elements that two row-major boxes have in common, as runs that are contiguous in both. Pure;
// one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace mt::checkpoint {

// A box of a tensor.
struct Box {
  std::vector<int64_t> offset, shape;
};

// What two boxes of one tensor have in common; nullopt: no element.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Runs in the order of `from`, ascending there and in `to`.
class BoxRuns {
 public:
  struct Run {
    int64_t from = 0;  // first element, counted in `from`
    int64_t to = 0;    // the same, counted in `to`
    int64_t count = 0;
  };

  // `common` lies in both and has elements; all are borrowed.
  BoxRuns(const Box& common, const Box& from, const Box& to);
  // False: there are no more.
  bool Next(Run* run);

 private:
  const Box& common_;
  const Box& from_;
  const Box& to_;
  size_t outer_ = 0;         // dimensions that runs are counted over; the others lie within a run
  int64_t length_ = 1;       // of each run
  std::vector<int64_t> at_;  // first element of the next run
  bool done_ = false;
};

}  // namespace mt::checkpoint
