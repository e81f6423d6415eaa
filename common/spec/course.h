// How a run goes through its samples: the batch size of each of its steps, and its length. Both are
// those of its job, unless it goes on from a checkpoint with other batch sizes: then it keeps its
// place and its length in samples, and takes another number of steps. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/spec/batch_ramp.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

using megatrain::v1::JobSpec;

struct Course {
  BatchRamp ramp = BatchRamp::Constant(1);  // of all steps, those before a checkpoint included
  int64_t samples = 0;                      // of the whole run
  int64_t steps = 0;                        // of the whole run, the same

  bool operator==(const Course& other) const {
    return ramp.phases() == other.ramp.phases() && samples == other.samples && steps == other.steps;
  }
};

// The course of a run of this completed job that begins with it.
Course CourseOf(const JobSpec& job);

// What a checkpoint tells of the run that saved it.
struct CourseSoFar {
  const JobSpec* job = nullptr;  // its completed job
  std::string sizes;             // SizesText of its course; empty: its job's own
  int64_t samples = 0;           // of the whole run
  int64_t step = 0;              // of the checkpoint
  int64_t consumed_samples = 0;  // up to it
};

// The course of a run of `job` that goes on from there. kDataLoss where step and samples do not
// belong together. kFailedPrecondition, both values named: the length in samples is another one,
// or the batch sizes are and the length is given in iterations, of which it would take another
// number.
StatusOr<Course> ContinueCourse(const JobSpec& job, const CourseSoFar& before);

// A course's batch sizes as from:size in samples, "0:8 80:16".
std::string SizesText(const Course& course);

// The lengths of a learning rate schedule (derived.h) in samples of this course: a percentage is of
// all its samples, a number of iterations of its own steps.
int64_t WarmupSamples(const JobSpec& job, const Course& course);
int64_t DecaySamples(const JobSpec& job, const Course& course);
int64_t WsdSamples(const JobSpec& job, const Course& course);

}  // namespace mt::spec
