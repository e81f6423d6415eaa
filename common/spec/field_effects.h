// When a field of a job acts. A job file may give a value to a field that its other fields leave
// without effect: where that is no fault it is said, so that nobody waits for what cannot come.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

// What is to be said of a field that has a value.
struct FieldNote {
  std::string path;  // "optimizer.min_lr"
  // "1e-05 has no effect, since optimizer.decay is constant; leave it out, or choose another decay"
  std::string text;

  friend bool operator==(const FieldNote&, const FieldNote&) = default;
};

// The fields of a completed job (validate.h) that change nothing, unless their value is what the
// job has without them; and what a model makes of a value otherwise than Megatron-LM. In the order
// of job.proto. What depends on the device is said only where that is known.
std::vector<FieldNote> FieldNotes(const megatrain::v1::JobSpec& job);

// "path: text" for each note.
std::vector<std::string> NoteLines(const std::vector<FieldNote>& notes);

// True if the table of this file says when the field at this path acts. Every field of a job that
// is built has exactly one row (a test holds it to that).
int NumRows(std::string_view path);

}  // namespace mt::spec
