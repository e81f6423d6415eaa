// A run's way through its samples where it goes on with other batch sizes.
#include "common/spec/course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

using ::testing::HasSubstr;

// Batches of 16 of 32 tokens; overrides may say otherwise.
JobSpec JobWith(const std::vector<std::string>& overrides) {
  const Loaded loaded = Load(overrides);
  EXPECT_EQ(FormatFaults(loaded.faults), "");
  return loaded.job;
}

std::vector<std::string> InSamples(int64_t samples, std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"training.train_iters=", fmt::format("training.train_samples={}", samples)});
  return more;
}

TEST(CourseTest, TheSameJobGoesOnAsItWas) {
  for (const auto& overrides :
       {std::vector<std::string>{"training.train_iters=100"},
        InSamples(1610),
        {"training.global_batch_size=32", "parallel.data=2", "training.batch_ramp=8,8,300"}}) {
    const JobSpec job = JobWith(overrides);
    const Course course = CourseOf(job);
    const auto same = ContinueCourse(job, {.job = &job,
                                           .samples = course.samples,
                                           .step = 7,
                                           .consumed_samples = course.ramp.SamplesAfter(7)});
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(*same, course);
  }
}

// 100 batches of 16, then from sample 160 on of 64, then from 480 on a ramp.
TEST(CourseTest, PlaceAndLengthAreInSamples) {
  const JobSpec first = JobWith({"training.train_iters=100"});
  const JobSpec larger = JobWith(InSamples(1600, {"training.global_batch_size=64"}));
  const auto second =
      ContinueCourse(larger, {.job = &first, .samples = 1600, .step = 10, .consumed_samples = 160});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(SizesText(*second), "0:16 160:64");
  EXPECT_EQ(second->samples, 1600);
  EXPECT_EQ(second->steps, 10 + 22) << "32 samples are less than a step";

  const JobSpec ramp = JobWith(InSamples(
      1600, {"training.global_batch_size=", "training.batch_ramp=0:16 16640:32 32000:16"}));
  const auto third = ContinueCourse(ramp, {.job = &larger,
                                           .sizes = SizesText(*second),
                                           .samples = 1600,
                                           .step = 15,
                                           .consumed_samples = 480});
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(SizesText(*third), "0:16 160:64 480:16 520:32 1000:16");
  int64_t consumed = 0;
  int64_t steps = 0;
  while (consumed + third->ramp.BatchOf(consumed) <= 1600) {
    consumed += third->ramp.BatchOf(consumed);
    ++steps;
    EXPECT_EQ(third->ramp.SamplesAfter(steps), consumed);
  }
  EXPECT_EQ(third->steps, steps);
  // And again, without a change.
  const auto fourth = ContinueCourse(ramp, {.job = &ramp,
                                            .sizes = SizesText(*third),
                                            .samples = 1600,
                                            .step = 20,
                                            .consumed_samples = third->ramp.SamplesAfter(20)});
  ASSERT_TRUE(fourth.ok()) << fourth.status();
  EXPECT_EQ(*fourth, *third);
}

TEST(CourseTest, LengthsOfTheScheduleAreOfItsSamples) {
  const JobSpec first = JobWith(InSamples(1610));
  const JobSpec job = JobWith(InSamples(
      1610, {"training.global_batch_size=64", "optimizer.warmup=100", "optimizer.decay_over=50%",
             "optimizer.decay=wsd", "optimizer.wsd.over=10%"}));
  const auto course =
      ContinueCourse(job, {.job = &first, .samples = 1600, .step = 1, .consumed_samples = 16});
  ASSERT_TRUE(course.ok()) << course.status();
  EXPECT_EQ(TotalSamples(job), 1600);
  EXPECT_EQ(course->samples, 1600) << "though its batches only fill 1,552";
  EXPECT_EQ(WarmupSamples(job, *course), 100);
  EXPECT_EQ(DecaySamples(job, *course), 800);
  EXPECT_EQ(WsdSamples(job, *course), 160);
}

TEST(CourseTest, RefusesAnotherLengthAndIterationsOfOtherBatches) {
  const JobSpec saved = JobWith({"training.train_iters=100"});
  const auto refusal = [&](const JobSpec& job) {
    const auto course =
        ContinueCourse(job, {.job = &saved, .samples = 1600, .step = 10, .consumed_samples = 160});
    EXPECT_EQ(course.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(course.status().message());
  };
  EXPECT_THAT(refusal(JobWith({"training.train_iters=200"})),
              AllOf(HasSubstr("training.train_iters: checkpoint has 100, job has 200"),
                    HasSubstr("1600 samples, this one 3200")));
  EXPECT_THAT(refusal(JobWith({"training.train_iters=100", "training.global_batch_size=32"})),
              AllOf(HasSubstr("training.global_batch_size: checkpoint has 16, job has 32"),
                    HasSubstr("training.train_samples: 1600")));
  EXPECT_THAT(refusal(JobWith({"training.train_iters=50", "training.global_batch_size=32"})),
              HasSubstr("training.train_iters: checkpoint has 100, job has 50"))
      << "as long, but not from step 10 on";
  EXPECT_THAT(refusal(JobWith(InSamples(1599, {"training.global_batch_size=32"}))),
              HasSubstr("1600 samples, this one 1599"));
  // Once sizes have changed, iterations say nothing any more.
  const JobSpec iterations = JobWith({"training.train_iters=50", "training.global_batch_size=32"});
  const JobSpec changed = JobWith(InSamples(1600, {"training.global_batch_size=32"}));
  EXPECT_FALSE(ContinueCourse(iterations, {.job = &changed,
                                           .sizes = "0:16 160:32",
                                           .samples = 1600,
                                           .step = 11,
                                           .consumed_samples = 192})
                   .ok());
}

// 1610 samples are 100 batches of 16 and a rest, which a run of other batches may train on.
TEST(CourseTest, TheLengthThatIsAdvisedIsAccepted) {
  const JobSpec saved = JobWith(InSamples(1610));
  const CourseSoFar before = {.job = &saved, .samples = 1600, .step = 10, .consumed_samples = 160};
  const auto refused = ContinueCourse(
      JobWith({"training.train_iters=100", "training.global_batch_size=32"}), before);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("training.train_samples: 1610 in place of train_iters"));
  const auto advised =
      ContinueCourse(JobWith(InSamples(1610, {"training.global_batch_size=32"})), before);
  EXPECT_TRUE(advised.ok()) << advised.status();
}

TEST(CourseTest, SamplesThatDoNotBelongToTheStepAreDamage) {
  const JobSpec job = JobWith({"training.train_iters=100"});
  for (const char* sizes : {"", "0:16 160:64", "what"}) {
    const auto course = ContinueCourse(
        job, {.job = &job, .sizes = sizes, .samples = 1600, .step = 10, .consumed_samples = 161});
    EXPECT_FALSE(course.ok()) << sizes;
  }
}

}  // namespace
}  // namespace mt::spec
