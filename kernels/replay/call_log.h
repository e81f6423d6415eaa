// The calls of a stretch of work, each distinct one once, with how often it was made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/replay/op_call.h"

namespace mt::kernels::replay {

// What a call refers to, as stretches of memory: overlapping operands (the views of a packed
// projection, an output in place of an input) are one. Scratch and blocks are left out.
struct Extent {
  char* begin = nullptr;
  int64_t bytes = 0;
  bool indices = false;  // integers, whose values must fit the call: tokens, positions
};
// Rising, disjoint.
std::vector<Extent> ExtentsOf(const OpCall& call);

struct LoggedCall {
  std::unique_ptr<OpCall> call;  // the first one of its kind
  int64_t count = 0;
  // Contents of its index extents as they were, in the order of ExtentsOf.
  std::vector<std::vector<char>> indices;
};

// Thread-safe. While it is on, the first call of each kind copies its indices to the host, which
// waits for the stream: one step that is not timed.
class CallLog {
 public:
  explicit CallLog(Device* device) : device_(device) {}

  void Start();
  void Stop();
  void Note(Stream& stream, const OpCall& call);
  // In the order of their first call. Not while it is on.
  std::vector<LoggedCall> Take();

 private:
  Device* const device_;
  base::Mutex mu_;
  bool on_ GUARDED_BY(mu_) = false;
  std::map<std::string, size_t> index_ GUARDED_BY(mu_);  // by signature
  std::vector<LoggedCall> calls_ GUARDED_BY(mu_);
};

}  // namespace mt::kernels::replay
