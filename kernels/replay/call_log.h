// A log of op calls: each distinct call once, with the number of times it was made. Replay
// (replay.h) times them later, one kind at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/replay/op_call.h"

namespace mt::kernels::replay {

// A contiguous range of memory that a call refers to. Overlapping operands (the views of a packed
// projection, an output in place of an input) form one extent. Workspaces and scalar blocks are
// left out.
struct Extent {
  char* begin = nullptr;
  int64_t bytes = 0;
  bool indices = false;  // contains integers whose values must fit the call: tokens, positions
};
// Returns the extents of a call, in ascending order and disjoint.
std::vector<Extent> ExtentsOf(const OpCall& call);

struct LoggedCall {
  std::unique_ptr<OpCall> call;  // the first call with its signature
  int64_t count = 0;
  // Contents of its index extents at the time of the call, in the order of ExtentsOf.
  std::vector<std::vector<char>> indices;
};

// Thread-safe. While logging is on, the first call of each kind copies its indices to the host and
// waits for the stream, so the logged step must not be timed.
class CallLog {
 public:
  // `device` must outlive the log.
  explicit CallLog(Device* device) : device_(device) {}

  void Start();
  void Stop();
  // Counts the call, and keeps a copy if it is the first of its kind; does nothing while logging is
  // off.
  void Note(Stream& stream, const OpCall& call);
  // Returns the logged calls in the order of their first occurrence and clears the log. Aborts
  // (CHECK) while logging is on.
  std::vector<LoggedCall> Take();

 private:
  Device* const device_;
  base::Mutex mu_;
  bool on_ GUARDED_BY(mu_) = false;
  std::map<std::string, size_t> index_ GUARDED_BY(mu_);  // signature to position in calls_
  std::vector<LoggedCall> calls_ GUARDED_BY(mu_);
};

}  // namespace mt::kernels::replay
