// `mtctl follow` and the live lines: what a user sees who comes back to a job, on terminals of
// three widths and without one.
#include <algorithm>
#include <string>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/output/activity_text.h"
#include "client/output/format.h"
#include "tests/client/fake_coordinator.h"
#include "tests/client/terminal_screen.h"

namespace mt::client {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

class FollowTest : public testing::Test {
 protected:
  static v1::Job Running() {
    v1::Job job = MakeJob("tiny", v1::RUNNING);
    job.mutable_first_step()->set_step(1);
    job.mutable_first_step()->set_loss(5.5);
    job.mutable_last_eval()->set_step(30);
    job.mutable_last_eval()->set_loss(2.75);
    job.mutable_last_eval()->set_split("valid");
    for (const int step : {10, 20}) job.add_checkpoints()->set_step(step);
    job.mutable_last_checkpoint()->set_step(20);
    job.mutable_last_checkpoint()->set_bytes(2 << 20);
    return job;
  }
  void AddEvent(const std::string& type, const std::string& message) {
    v1::Event event;
    event.set_seq(static_cast<int64_t>(server_.state().events.size()) + 1);
    event.set_time_us(1'700'000'000'000'000);
    event.set_type(type);
    event.set_message(message);
    server_.state().events.push_back(event);
  }
  static v1::MetricsChunk Chunk(int64_t step) {
    v1::MetricsChunk chunk;
    chunk.add_steps()->set_step(step);
    chunk.mutable_steps(0)->set_loss(2.25);
    chunk.mutable_steps(0)->set_step_seconds(0.5);
    return chunk;
  }
  FakeCoordinator server_;
};

TEST_F(FollowTest, SaysWhatHappenedAndWatchesToTheEnd) {
  server_.state().jobs = {Running()};
  v1::Job saved = Running();
  saved.mutable_last_checkpoint()->set_step(50);
  v1::Job done = saved;
  done.set_state(v1::SUCCEEDED);
  done.set_message("trained to step 100");
  done.mutable_last_step()->set_step(100);
  server_.state().watch = {Running(), saved, done};
  // Else the job's end may be shown, and both streams left, before the metrics are asked for.
  server_.state().watch_after_metrics = true;
  server_.state().metrics = {Chunk(30), Chunk(41)};
  AddEvent("CheckpointFailed", "disk full");
  AddEvent("CheckpointSaved", "step 20");
  AddEvent("CheckpointFailed", "disk full");
  const Ran ran = Mtctl(&server_, {"follow", "tiny", "--time-format", "iso"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              StartsWith("job tiny: RUNNING, submitted 2023-11-14T22:13:20Z\n"
                         "step 40 of 100, loss 2.5000 (first 5.5000), 12.3k tokens/s\n"
                         "validation loss 2.7500 at step 30\n"
                         "last checkpoint: step 20, 2.0 MiB\n"
                         "what happened last:\n"
                         "  2023-11-14T22:13:20Z  CheckpointSaved  step 20\n"
                         "  2023-11-14T22:13:20Z  CheckpointFailed  disk full  (2 times)\n"));
  // What was said is not said again; what is new is.
  EXPECT_THAT(ran.out, Not(HasSubstr("checkpoint saved at step 20")));
  EXPECT_THAT(ran.out, Not(HasSubstr("\nRUNNING\n")));
  EXPECT_THAT(ran.out, Not(HasSubstr("valid loss 2.7500 at step 30 (")));
  EXPECT_THAT(ran.out, HasSubstr("checkpoint saved at step 50"));
  EXPECT_THAT(ran.out, HasSubstr("100/100"));
  EXPECT_THAT(ran.err, HasSubstr("job tiny SUCCEEDED: trained to step 100"));
  EXPECT_EQ(server_.state().streamed.since_step(), 20) << "not the whole history";
  EXPECT_EQ(Mtctl(&server_, {"attach", "tiny"}).code, 0);
  EXPECT_EQ(Mtctl(&server_, {"follow", "nobody"}).code, kExitInvalidInput);
  const Ran json = Mtctl(&server_, {"follow", "tiny", "-o", "json"});
  EXPECT_EQ(json.code, kExitUsage);
  EXPECT_THAT(json.err, HasSubstr("mtctl metrics tiny -w -o jsonl"));
}

TEST_F(FollowTest, CtrlCSaysHowToFollowAgainAndThatTheJobRunsOn) {
  server_.state().jobs = {Running()};
  server_.state().watch = {Running()};
  server_.state().metrics_stall = true;
  std::thread key([] { PressCtrlC(400); });
  const Ran ran = Mtctl(&server_, {"follow", "tiny"});
  key.join();
  EXPECT_EQ(ran.code, kExitInterrupted);
  const std::string place = " --coordinator " + server_.address();
  EXPECT_EQ(ran.err,
            "mtctl: stopped following; the job runs on. Follow it again: mtctl follow tiny" +
                place + "; end it: mtctl cancel tiny" + place + "\n");
}

// A line per update: never wider than the terminal, never a field cut in two.
TEST_F(FollowTest, TheLiveLineFitsTheTerminal) {
  v1::Job done = Running();
  done.set_state(v1::SUCCEEDED);
  server_.state().jobs = {Running()};
  server_.state().metrics = {Chunk(41)};
  server_.state().metrics_stall = true;
  server_.state().watch = {Running()};
  const std::pair<int, const char*> wanted[] = {
      {60, "    41/100  41%  eta 30s  loss 2.2500  lr 0.00e+00"},
      {80, "    41/100  41%  eta 30s  loss 2.2500  lr 0.00e+00  gnorm 0.00  0 tok/s"},
      {120,
       "    41/100  41%  eta 30s  loss 2.2500  lr 0.00e+00  gnorm 0.00  0 tok/s  0 TFLOP/s  0 B"}};
  for (const auto& [columns, text] : wanted) {
    const Drawn drawn = MtctlOnTerminalUntil("41/100", &server_, {"follow", "tiny"}, columns);
    EXPECT_EQ(drawn.code, kExitInterrupted);
    bool seen = false;
    for (const std::string& line : LinesOf(drawn.text)) {
      if (!line.starts_with("    41/100")) continue;
      seen = true;
      EXPECT_LT(line.size(), static_cast<size_t>(columns));
      EXPECT_THAT(line, StartsWith("    41/100"));
      if (columns < 120) {
        EXPECT_EQ(line, text);
      }
    }
    EXPECT_TRUE(seen) << drawn.text;
  }
  // It is drawn where it changes, not at each tick.
  const Drawn drawn = MtctlOnTerminal(&server_, {"follow", "tiny"}, 80, [] { PressCtrlC(900); });
  const auto lines = LinesOf(drawn.text);
  EXPECT_LE(std::ranges::count_if(lines, [](const auto& l) { return l.starts_with("    41/"); }),
            2);
}

TEST_F(FollowTest, NoColourNoControlWhereNotAskedFor) {
  server_.state().jobs = {Running()};
  server_.state().watch = {Running()};
  ::setenv("NO_COLOR", "1", 1);
  const Drawn plain = MtctlOnTerminalUntil("job tiny: RUNNING", &server_, {"follow", "tiny"}, 80);
  ::unsetenv("NO_COLOR");
  EXPECT_THAT(plain.text, Not(HasSubstr("\033[3")));
  EXPECT_THAT(plain.text, HasSubstr("job tiny: RUNNING"));
  // A terminal that cannot redraw gets lines.
  const char* term = std::getenv("TERM");
  const std::string before = term == nullptr ? "" : term;
  ::setenv("TERM", "dumb", 1);
  const Drawn dumb = MtctlOnTerminalUntil("job tiny: RUNNING", &server_, {"follow", "tiny"}, 80);
  EXPECT_THAT(dumb.text, Not(HasSubstr("\033")));
  if (before.empty()) {
    ::unsetenv("TERM");
  } else {
    ::setenv("TERM", before.c_str(), 1);
  }
}

TEST_F(FollowTest, BeforeTheFirstStepItSaysWhatIsWaitedFor) {
  v1::Job starting = MakeJob("tiny", v1::STARTING);
  starting.clear_last_step();
  v1::Job indexing = starting;
  indexing.mutable_activity()->set_kind(v1::Activity::INDEXING);
  indexing.mutable_activity()->set_done(120);
  indexing.mutable_activity()->set_total(4'000);
  indexing.mutable_activity()->set_seconds(63);
  server_.state().jobs = {starting};
  server_.state().watch = {indexing};
  // Seconds pass until it is shown.
  const std::string text = "opening the data: 120 of 4000 documents, 1m";
  const Drawn drawn = MtctlOnTerminalUntil(text, &server_, {"follow", "tiny"}, 80);
  EXPECT_THAT(LinesOf(drawn.text), Contains(MatchesRegex(text + "[0-9]+s")));
  // Elsewhere a line per kind, not per tick.
  std::thread key([&] { PressCtrlCAfter(text, STDOUT_FILENO, 600); });
  const Ran ran = Mtctl(&server_, {"follow", "tiny"});
  key.join();
  EXPECT_THAT(ran.out, ContainsRegex(text + "[0-9]+s\n"));
  EXPECT_EQ(ran.out.find("opening"), ran.out.rfind("opening")) << ran.out;
  // Nothing is known: what is waited for, and how long.
  server_.state().watch = {starting};
  const char kWaiting[] = "waiting for the first step, ";
  const Drawn waiting = MtctlOnTerminalUntil(kWaiting, &server_, {"follow", "tiny"}, 80);
  EXPECT_THAT(LinesOf(waiting.text), Contains(MatchesRegex(std::string(kWaiting) + "[0-9]+s")));
}

TEST_F(FollowTest, WaitShowsChangesOfTheStateOnATerminal) {
  v1::Job queued = MakeJob("tiny", v1::QUEUED);
  queued.set_message("2 slots wanted, 1 free");
  queued.clear_last_step();
  server_.state().jobs = {queued};
  server_.state().watch = {queued};
  const char kWhy[] = "QUEUED: 2 slots wanted, 1 free";
  const Drawn drawn = MtctlOnTerminalUntil(kWhy, &server_, {"wait", "tiny"}, 80);
  EXPECT_THAT(LinesOf(drawn.text), Contains(kWhy));
  std::thread key([] { PressCtrlC(300); });
  const Ran ran = Mtctl(&server_, {"wait", "tiny"});
  key.join();
  EXPECT_THAT(ran.err, Not(HasSubstr("QUEUED")));
  // One that has trained and waits is told to a script, too, once.
  v1::Job stopped = queued;
  stopped.mutable_last_step()->set_step(7);
  stopped.set_message("DataMissing: step 8: text.bin: 0 bytes");
  v1::Job tries = stopped;
  tries.set_state(v1::STARTING);
  tries.clear_message();
  server_.state().watch = {stopped, tries, stopped};
  const std::string line = "QUEUED: DataMissing: step 8: text.bin: 0 bytes\n";
  std::thread again([&] { PressCtrlCAfter(line, STDERR_FILENO, 900); });
  const Ran told = Mtctl(&server_, {"wait", "tiny"});
  again.join();
  EXPECT_THAT(told.err, HasSubstr(line));
  EXPECT_EQ(told.err.find(line), told.err.rfind(line)) << told.err;
}

TEST(ActivityTextTest, EachKindSaysHowFarItIs) {
  v1::Job job;
  v1::Activity& now = *job.mutable_activity();
  EXPECT_EQ(ActivityText(job, 0), "");
  const auto text = [&](v1::Activity::Kind kind, int64_t step, int64_t done, int64_t total,
                        double seconds, double more = 0) {
    now.set_kind(kind);
    now.set_step(step);
    now.set_done(done);
    now.set_total(total);
    now.set_seconds(seconds);
    return ActivityText(job, more);
  };
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(text(v1::Activity::SAVING, 1'200, kGiB * 31 / 10, kGiB * 158 / 10, 2, 1.45),
            "saving step 1200: 3.1 of 15.8 GiB, 920.1 MiB/s");
  EXPECT_EQ(text(v1::Activity::LOADING, 0, 0, 4'096, 3),
            "loading a checkpoint: 0.0 of 4.0 KiB, 3s");
  EXPECT_EQ(text(v1::Activity::LOADING, 7, 512, 0, 1),
            "loading a checkpoint of step 7: 512 B, 512 B/s");
  EXPECT_EQ(text(v1::Activity::TUNING, 0, 12, 40, 3, 2),
            "timing matrix products: 12 of 40 products, 5s");
  EXPECT_EQ(text(v1::Activity::INDEXING, 0, 0, 0, 12), "opening the data: 12s");
  EXPECT_EQ(text(v1::Activity::STEP, 0, 3, 16, 12),
            "computing the first step: 3 of 16 microbatches, 12s");
  EXPECT_EQ(text(v1::Activity::EVALUATING, 400, 5, 0, 8),
            "evaluating step 400: 5 microbatches, 8s");
  EXPECT_EQ(text(v1::Activity::SCORING, 0, 120, 5'153, 9), "scoring: 120 of 5153 documents, 9s");
  EXPECT_EQ(text(v1::Activity::NONE, 0, 5, 6, 8), "");
  job.set_slots(4);
  EXPECT_EQ(text(v1::Activity::SAVING, 8, 1, 2, 1), "saving step 8: 1 of 2 B, 1 B/s (rank 0)");
}

}  // namespace
}  // namespace mt::client
