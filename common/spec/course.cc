// A course that goes on is one list of batch sizes: of the steps that are done, and from there on
// those of the new job.
#include "common/spec/course.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "common/spec/number.h"
#include "common/spec/text_forms.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

using megatrain::v1::Training;

// A length of the learning-rate schedule in samples; `text` has been validated.
int64_t LengthInSamples(const JobSpec& job, const Course& course, const std::string& text) {
  const std::optional<Length> length = ParseLength(text);
  CHECK(length.has_value()) << "unchecked length \"" << text << "\"";
  if (length->is_percent) {
    const int64_t total = course.samples;
    // The added term compensates that percentages such as 0.7 have no exact binary form.
    const double share = length->percent * static_cast<double>(total) / 100 + 1e-6;
    return share >= static_cast<double>(total) ? total : static_cast<int64_t>(std::floor(share));
  }
  const Training& training = job.training();
  if (training.has_train_iters()) return course.ramp.SamplesAfter(length->count);
  if (training.has_train_tokens()) return length->count / job.model().seq_length();
  return length->count;
}

// What the job asks for, before it is rounded down to whole batches.
int64_t SamplesAsked(const JobSpec& job) {
  const Training& training = job.training();
  if (training.has_train_samples()) return training.train_samples();
  if (training.has_train_tokens()) return training.train_tokens() / job.model().seq_length();
  return TotalSamples(job);
}

// "training.x: checkpoint has A, job has B" for each field that differs.
class TrainingDifferences {
 public:
  TrainingDifferences(const JobSpec& saved, const JobSpec& now)
      : saved_(saved.training()), now_(now.training()) {}

  template <class Has, class Get>
  void Compare(std::string_view field, const Has& has, const Get& get) {
    const auto text = [&](const Training& training) {
      return has(training) ? fmt::format("{}", get(training)) : std::string("nothing");
    };
    if (text(saved_) == text(now_)) return;
    lines_.push_back(
        fmt::format("training.{}: checkpoint has {}, job has {}", field, text(saved_), text(now_)));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const Training& saved_;
  const Training& now_;
  std::vector<std::string> lines_;
};

std::vector<std::string> LengthsThatDiffer(const JobSpec& saved, const JobSpec& now) {
  TrainingDifferences differences(saved, now);
  differences.Compare(
      "train_iters", [](const Training& t) { return t.has_train_iters(); },
      [](const Training& t) { return t.train_iters(); });
  differences.Compare(
      "train_samples", [](const Training& t) { return t.has_train_samples(); },
      [](const Training& t) { return t.train_samples(); });
  differences.Compare(
      "train_tokens", [](const Training& t) { return t.has_train_tokens(); },
      [](const Training& t) { return t.train_tokens(); });
  return differences.lines();
}

std::vector<std::string> BatchesThatDiffer(const JobSpec& saved, const JobSpec& now) {
  TrainingDifferences differences(saved, now);
  differences.Compare(
      "global_batch_size", [](const Training& t) { return t.has_global_batch_size(); },
      [](const Training& t) { return t.global_batch_size(); });
  differences.Compare(
      "batch_ramp", [](const Training& t) { return t.has_batch_ramp(); },
      [](const Training& t) { return t.batch_ramp(); });
  return differences.lines();
}

std::string PhasesText(const std::vector<BatchPhase>& phases) {
  std::vector<std::string> words;
  words.reserve(phases.size());
  for (const BatchPhase& phase : phases)
    words.push_back(fmt::format("{}:{}", phase.from_samples, phase.batch));
  return fmt::format("{}", fmt::join(words, " "));
}

// Of a text in which a sample counts as a token.
StatusOr<BatchRamp> SizesOf(const std::string& text) {
  return BatchRamp::Parse({.text = text, .seq_length = 1});
}

// The sizes of `done` up to `consumed` samples, where a step ends, and of `next` from there on.
StatusOr<BatchRamp> GoOnWith(const BatchRamp& done, const BatchRamp& next, int64_t consumed) {
  std::vector<BatchPhase> phases;
  const auto add = [&phases](const BatchPhase& phase) {
    if (phases.empty() || phases.back().batch != phase.batch) phases.push_back(phase);
  };
  for (const BatchPhase& phase : done.phases()) {
    if (phase.from_samples < consumed) add(phase);
  }
  add({.from_samples = consumed, .batch = next.BatchOf(consumed)});
  for (const BatchPhase& phase : next.phases()) {
    if (phase.from_samples > consumed) add(phase);
  }
  return SizesOf(PhasesText(phases));
}

Status RefuseCourse(const CourseSoFar& before, const std::vector<std::string>& differences,
                    const std::string& what_to_do) {
  return base::FailedPrecondition("this job cannot go on from checkpoint step {}: {}. {}",
                                  before.step, fmt::join(differences, "; "), what_to_do);
}

constexpr char kOtherwise[] =
    "use the checkpoint's values, another checkpoint.directory, or --restart to begin another run "
    "on purpose";

}  // namespace

Course CourseOf(const JobSpec& job) {
  return {.ramp = RampOf(job), .samples = TotalSamples(job), .steps = TotalIterations(job)};
}

StatusOr<Course> ContinueCourse(const JobSpec& job, const CourseSoFar& before) {
  Course course{.ramp = RampOf(*before.job), .samples = before.samples};
  if (!before.sizes.empty()) {
    ASSIGN_OR_RETURN(course.ramp, SizesOf(before.sizes));
  }
  const int64_t consumed = course.ramp.SamplesAfter(before.step);
  if (consumed != before.consumed_samples) {
    return base::DataLoss("the manifest of step {} has consumed {} samples, not {}", before.step,
                          before.consumed_samples, consumed);
  }
  const std::vector<std::string> lengths = LengthsThatDiffer(*before.job, job);
  std::vector<std::string> batches = BatchesThatDiffer(*before.job, job);
  if (lengths.empty() && batches.empty() && before.sizes.empty()) return CourseOf(job);
  if ((!batches.empty() || !before.sizes.empty()) && job.training().has_train_iters()) {
    batches.insert(batches.end(), lengths.begin(), lengths.end());
    return RefuseCourse(
        before, batches,
        fmt::format("Of other batches the same number of iterations is another length: give the "
                    "checkpoint's in samples, training.train_samples: {} in place of train_iters, "
                    "and in samples too what optimizer.warmup, decay_over and wsd.over give in "
                    "iterations; or {}",
                    SamplesAsked(*before.job), kOtherwise));
  }
  if (SamplesAsked(job) != SamplesAsked(*before.job)) {
    return RefuseCourse(before, lengths,
                        fmt::format("Its run has {} samples, this one {}: {}",
                                    SamplesAsked(*before.job), SamplesAsked(job), kOtherwise));
  }
  ASSIGN_OR_RETURN(course.ramp, GoOnWith(course.ramp, RampOf(job), consumed));
  course.steps = course.ramp.StepsFor(course.samples);
  return course;
}

std::string SizesText(const Course& course) { return PhasesText(course.ramp.phases()); }

int64_t WarmupSamples(const JobSpec& job, const Course& course) {
  return LengthInSamples(job, course, job.optimizer().warmup());
}

int64_t DecaySamples(const JobSpec& job, const Course& course) {
  return LengthInSamples(job, course, job.optimizer().decay_over());
}

int64_t WsdSamples(const JobSpec& job, const Course& course) {
  const std::string& over = job.optimizer().wsd().over();
  if (over.empty()) return 0;
  const std::optional<Length> length = ParseLength(over);
  CHECK(length.has_value()) << "unchecked length \"" << over << "\"";
  if (length->is_percent || !job.training().has_train_iters())
    return LengthInSamples(job, course, over);
  const int64_t decay_steps = course.ramp.StepsFor(DecaySamples(job, course));
  if (length->count > decay_steps)
    return SaturatingProduct(length->count, course.ramp.last_batch());
  return course.ramp.SamplesAfter(decay_steps) -
         course.ramp.SamplesAfter(decay_steps - length->count);
}

}  // namespace mt::spec
