// A stored history as a TensorBoard event file (common/tensorboard), page by page. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/tensorboard/scalars.h"

namespace megatrain::v1 {
class History;
}

namespace mt::client {

// The bytes of one file, from its head on: what is handed out, one behind the other. One thread.
class EventExport {
 public:
  // The next steps, none of them thinned, with the evaluations of the page; "" for an empty page.
  // Metrics that a step did not report are left out.
  std::string Page(const megatrain::v1::History& page);
  // Steps from `first` on were handed out, and come again: readers drop them.
  std::string Again(int64_t first, int64_t time_us) const;

 private:
  tensorboard::BatchSizes sizes_;
  bool begun_ = false;
};

}  // namespace mt::client
