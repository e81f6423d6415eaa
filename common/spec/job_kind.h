// What jobs of a kind are: one table, a row a kind, that every part asks which treats kinds apart.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

struct JobKind {
  std::string_view name;   // as in a job file
  bool has_steps = false;  // trains: it has a batch, a length, a layout of ranks
  bool saves = false;      // may have a directory of checkpoints, and goes on from there
  bool is_timed = false;   // a benchmark, which sets its own length and reports
  // A reader: one rank that reads a checkpoint, of whatever job, and writes text or scores. It has
  // no model, data, layout or directory of its own.
  bool reads = false;
  bool decodes = false;  // a reader that writes text; another one scores
};

// The kind of the job; one without a kind, or of a number that is none, is as kind train.
const JobKind& KindOf(const megatrain::v1::JobSpec& job);

// Whether a job of this kind has the field at `path` ("read.step"), or anything of that section.
// What it does not have is refused, and gets no default (complete.h).
bool HasField(const JobKind& kind, std::string_view path);

// Overrides, to be applied before the user's own, that turn any job file into one of kind bench.
// Model, data, layout, batch and precision stay; length, evaluation, checkpoints and the
// learning-rate schedule, which a benchmark does not use, are removed.
std::vector<std::string> BenchOverrides();

}  // namespace mt::spec
