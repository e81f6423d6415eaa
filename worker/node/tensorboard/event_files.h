// Where event files are written. Calls return at once and never fail: a problem is logged by who
// writes.
#pragma once

#include <string>

namespace mt::node {

// The file that one agent writes for one job and epoch.
struct EventFilePlace {
  std::string log_root;  // absolute
  std::string folder;    // below it, in which the file lies
  std::string label;     // at the end of the file's name; unique to the job and epoch

  friend auto operator<=>(const EventFilePlace&, const EventFilePlace&) = default;
};

class EventFiles {
 public:
  virtual ~EventFiles() = default;
  // Makes the file; `head` is kept until it could be written, and comes before all else.
  virtual void Begin(const EventFilePlace& place, std::string head) = 0;
  // Whole records for the end of a file that was begun.
  virtual void Append(const EventFilePlace& place, std::string records) = 0;
  // Nothing more comes for it. What was appended is written nevertheless.
  virtual void Close(const EventFilePlace& place) = 0;
};

}  // namespace mt::node
