// What `get`, `describe`, `events`, `metrics` and `wait` print and return against a fake
// coordinator.
#include <algorithm>
#include <string>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class ViewsTest : public testing::Test {
 protected:
  v1::Event MakeEvent(int64_t seq, const std::string& type) {
    v1::Event event;
    event.set_seq(seq);
    event.set_time_us(1'700'000'000'000'000);
    event.set_type(type);
    event.set_job("default/tiny");
    event.set_message("message " + std::to_string(seq));
    return event;
  }
  FakeCoordinator server_;
};

TEST_F(ViewsTest, JobsInEveryFormat) {
  v1::Job old = MakeJob("tiny", v1::SUCCEEDED);
  old.set_uid("uid-of-old");
  server_.state().jobs = {MakeJob("tiny", v1::RUNNING), old};
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "--time-format", "iso"}).out,
            "NAME  STATE      STEP    LOSS    VALID  TOK/S  SLOTS  CREATED               MESSAGE\n"
            "tiny  RUNNING    40/100  2.5000  -      12.3k  2      2023-11-14T22:13:20Z\n"
            "tiny  SUCCEEDED  40/100  2.5000  -      12.3k  2      2023-11-14T22:13:20Z\n");
  // The names for other verbs: the newest job by name, older ones by uid.
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "-o", "name"}).out, "tiny\nuid-of-old\n");
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "-o", "none"}).out, "");
  const Ran tree = Mtctl(&server_, {"get", "jobs", "-o", "json"});
  EXPECT_EQ(json::parse(tree.out).at("jobs").at(1).at("uid"), "uid-of-old");
  const Ran lines = Mtctl(&server_, {"get", "jobs", "-o", "jsonl"});
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 2);
  EXPECT_EQ(json::parse(lines.out.substr(0, lines.out.find('\n'))).at("uid"), "uid-of-tiny");
  EXPECT_THAT(Mtctl(&server_, {"get", "jobs", "-o", "yaml"}).out,
              HasSubstr("jobs:\n  - uid: uid-of-tiny\n    name: tiny\n"));
  EXPECT_THAT(Mtctl(&server_, {"get", "jobs", "-o", "wide"}).out, HasSubstr("UID"));
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "-o", "csv"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "-o", "xml"}).code, kExitUsage);
}

TEST_F(ViewsTest, ColoursOnlyWhereAskedFor) {
  server_.state().jobs = {MakeJob("tiny", v1::FAILED)};
  EXPECT_THAT(Mtctl(&server_, {"get", "jobs"}).out, Not(HasSubstr("\033")));  // no terminal
  EXPECT_THAT(Mtctl(&server_, {"get", "jobs", "--color", "always"}).out,
              HasSubstr("\033[31mFAILED\033[0m  40/100"));
}

TEST_F(ViewsTest, SelectorsAndEmptyLists) {
  v1::Job labelled = MakeJob("labelled", v1::RUNNING);
  (*labelled.mutable_spec()->mutable_labels())["team"] = "nlp";
  server_.state().jobs = {labelled, MakeJob("other", v1::RUNNING)};
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "-o", "name", "-l", "team=nlp"}).out, "labelled\n");
  EXPECT_EQ(Mtctl(&server_, {"get", "jobs", "-o", "name", "-l", "team"}).out, "labelled\n");
  const Ran none = Mtctl(&server_, {"get", "jobs", "-l", "team=vision"});
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("no jobs"));
}

TEST_F(ViewsTest, NodesCheckpointsAndOperations) {
  v1::Node* node = server_.state().nodes.add_nodes();
  node->set_name("n1");
  node->set_state(v1::NODE_LOST);
  node->add_slots()->set_job_uid("u");
  node->add_slots();
  EXPECT_THAT(Mtctl(&server_, {"get", "nodes"}).out,
              HasSubstr("n1    LOST   -          1 of 2    -  "));
  server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  auto* checkpoint = server_.state().checkpoints.add_checkpoints();
  checkpoint->set_step(20);
  checkpoint->set_epoch(1);
  checkpoint->set_bytes(2048);
  checkpoint->set_path("/c/step-00000020-e0001");
  EXPECT_EQ(Mtctl(&server_, {"get", "checkpoints", "tiny"}).out,
            "STEP  EPOCH  BYTES    SECONDS  AGE  TAG  PATH\n"
            "20    1      2.0 KiB  0.00     -    -    /c/step-00000020-e0001\n");
  EXPECT_EQ(Mtctl(&server_, {"get", "checkpoints", "tiny", "-o", "name"}).out, "20\n");
  server_.state().complete = [](v1::Operation* operation) { operation->set_mode("hold"); };
  ASSERT_EQ(Mtctl(&server_, {"pause", "tiny"}).code, 0);
  EXPECT_THAT(Mtctl(&server_, {"get", "operations", "tiny"}).out,
              HasSubstr("operations/1  pause --hold  default/tiny  done"));
  EXPECT_EQ(Mtctl(&server_, {"get", "operations", "operations/1", "-o", "name"}).out,
            "operations/1\n");
  EXPECT_EQ(Mtctl(&server_, {"get", "operations", "operations/7"}).code, kExitInvalidInput);
}

TEST_F(ViewsTest, EventsListedAndFollowedAcrossABreak) {
  for (int seq = 1; seq <= 5; ++seq) server_.state().events.push_back(MakeEvent(seq, "Tick"));
  const Ran list = Mtctl(&server_, {"get", "events", "tiny", "-o", "json"});
  EXPECT_EQ(json::parse(list.out).at("events").size(), 5U);
  EXPECT_THAT(Mtctl(&server_, {"events", "--time-format", "raw", "--since", "5"}).out,
              HasSubstr("5    1700000000000000  default/tiny  Tick  message 5"));
  server_.state().event_streams = 0;
  server_.state().break_event_stream_after = 2;
  const Ran followed = Mtctl(&server_, {"events", "-f", "-o", "name"});
  EXPECT_EQ(followed.code, 0) << followed.err;
  EXPECT_EQ(followed.out, "1\n2\n3\n4\n5\n");  // each once, in order
  EXPECT_EQ(server_.state().event_streams, 2);
  EXPECT_THAT(followed.err, HasSubstr("connection reset by the test"));
  EXPECT_EQ(Mtctl(&server_, {"events", "-f", "-o", "json"}).code, kExitUsage);
}

TEST_F(ViewsTest, WatchPrintsWhatChangesAndEndsOnCtrlC) {
  server_.state().jobs = {MakeJob("one", v1::RUNNING), MakeJob("two", v1::QUEUED)};
  // A list is printed before the next one is asked for.
  const auto await_two_lists = [this] {
    for (int more = 2, seen = -1; more > 0; std::this_thread::yield()) {
      const base::MutexLock lock(&server_.state().mu);
      if (seen >= 0 && server_.state().job_lists > seen) --more;
      seen = server_.state().job_lists;
    }
  };
  std::thread world([&] {
    await_two_lists();
    {
      base::MutexLock lock(&server_.state().mu);
      server_.state().jobs[1].set_state(v1::STARTING);
    }
    await_two_lists();
    PressCtrlC(0);
  });
  const Ran ran = Mtctl(&server_, {"get", "jobs", "-w", "--interval", "0.1"});
  world.join();
  EXPECT_EQ(ran.code, kExitInterrupted);
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 4) << ran.out;  // header, 2, 1
  EXPECT_THAT(ran.out, HasSubstr("two   STARTING"));
}

TEST_F(ViewsTest, DescribeShowsWhyOperationsAndEvents) {
  v1::Job job = MakeJob("tiny", v1::QUEUED);
  job.set_message("2 slots wanted, 1 free");
  job.add_checkpoints()->set_step(20);
  server_.state().jobs = {job};
  server_.state().events = {MakeEvent(7, "StateChanged")};
  ASSERT_EQ(Mtctl(&server_, {"pause", "tiny"}).code, 0);
  const Ran text = Mtctl(&server_, {"describe", "tiny"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("Why pending:      2 slots wanted, 1 free"));
  EXPECT_THAT(text.out, HasSubstr("Checkpoints:\n  STEP"));
  EXPECT_THAT(text.out, HasSubstr("Operations:\n  OPERATION"));
  EXPECT_THAT(text.out, HasSubstr("message 7"));
  EXPECT_THAT(text.out, HasSubstr("none: resilience.max_restarts are 0, a fault ends the job"));
  v1::Job& spent = server_.state().jobs[0];
  auto& limits = *spent.mutable_spec()->mutable_resilience()->mutable_max_restarts();
  limits.set_infra_per_hour(10);
  limits.set_storage(3);
  spent.mutable_restarts()->set_storage(2);
  spent.mutable_restarts()->set_infrastructure(4);  // more than an hour ago
  spent.mutable_restarts()->set_no_progress(1);
  spent.mutable_restarts()->set_step(12);
  spent.mutable_restarts()->set_cause(v1::STORAGE);
  spent.mutable_restarts()->set_message("rank 1 exited with code 73");
  const std::string restarts = Mtctl(&server_, {"describe", "tiny"}).out;
  EXPECT_THAT(restarts, HasSubstr("6 (infrastructure 0 of 10 in an hour, user 0 of 0, hang 0 of 0, "
                                  "storage 2 of 3; without progress 1 of 0 in a row)"));
  EXPECT_THAT(restarts, HasSubstr(" behind step 12: STORAGE: rank 1 exited with code 73"));
  // What happens again and again is one line; the spec is there where it is asked for.
  for (const int seq : {8, 9, 10}) {
    server_.state().events.push_back(MakeEvent(seq, "CheckpointFailed"));
    server_.state().events.back().set_message("disk full");
  }
  const std::string counted = Mtctl(&server_, {"describe", "tiny"}).out;
  EXPECT_THAT(counted, ContainsRegex("Last errors:\n +[0-9a-z]+ ago  CheckpointFailed  disk full  "
                                     "\\(3 times\\)\nEvents:\n"));
  EXPECT_EQ(counted.find("Spec:"), std::string::npos);
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny", "--spec"}).out, HasSubstr("\nSpec:\n"));
  server_.state().events.resize(1);
  const json tree = json::parse(Mtctl(&server_, {"describe", "tiny", "-o", "json"}).out);
  EXPECT_EQ(tree.at("state"), "QUEUED");
  EXPECT_EQ(tree.at("operations").at(0).at("verb"), "pause");
  EXPECT_EQ(tree.at("events").at(0).at("seq"), 7);
  EXPECT_EQ(Mtctl(&server_, {"describe", "none"}).code, kExitInvalidInput);
}

TEST_F(ViewsTest, DescribeSaysWhatARunReadsAndWhatChanged) {
  v1::Job job = MakeJob("tiny", v1::RUNNING);
  const auto shown = [&] {
    server_.state().jobs = {job};
    return Mtctl(&server_, {"describe", "tiny"}).out;
  };
  const std::string unknown = shown();
  for (const char* key : {"\nTokens:", "\nData:", "\nTime left:", "\nChanged:"})
    EXPECT_THAT(unknown, Not(HasSubstr(key)));
  job.mutable_spec()->mutable_model()->set_seq_length(32);
  job.mutable_last_step()->set_consumed_samples(320);
  job.mutable_last_step()->set_step_seconds(2);
  v1::StartFacts& start = *job.mutable_run()->mutable_start();
  start.set_tokens(25'600);
  start.set_train_passes(29.04);
  EXPECT_THAT(shown(), HasSubstr("\nData:             29.0 passes over train in the whole run\n"));
  start.set_valid_passes(0.25);
  job.set_resumed_from_step(30);
  start.add_changed("optimizer.lr 0.001 -> 0.0003");
  start.add_changed("parallel.data 1 -> 2");
  const std::string all = shown();
  EXPECT_THAT(all, HasSubstr("\nTokens:           25.6k in the whole run, 15.4k ahead\n"));
  EXPECT_THAT(all, HasSubstr("29.0 passes over train, 0.25 over valid in the whole run\n"));
  EXPECT_THAT(all, HasSubstr("\nTime left:        2m00s at the speed of the last step\n"));
  EXPECT_THAT(all, HasSubstr("since the checkpoint of step 30: optimizer.lr 0.001 -> 0.0003; "
                             "parallel.data 1 -> 2\n"));
  job.set_state(v1::SUCCEEDED);
  EXPECT_THAT(shown(), Not(HasSubstr("\nTime left:"))) << "it has ended";
}

TEST_F(ViewsTest, DescribeNamesTheRunAndWhereItComesFrom) {
  v1::Job job = MakeJob("tiny", v1::RUNNING);
  server_.state().jobs = {job};
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny"}).out, Not(HasSubstr("\nRun:")));
  const auto shown = [&](const v1::Run& run) {
    *job.mutable_run() = run;
    server_.state().jobs = {job};
    return Mtctl(&server_, {"describe", "tiny"}).out;
  };
  v1::Run run;
  run.set_id("run-a");
  EXPECT_THAT(shown(run), HasSubstr("\nRun:              run-a\n"));
  run.set_restart("token");
  EXPECT_THAT(shown(run), HasSubstr("\nRun:              run-a, begun on purpose\n"));
  run.clear_restart();
  run.set_beginning("load 20, weights");
  run.set_from_run("run-b");
  run.set_from_step(20);
  run.set_from_digest("xxh3:aa");
  EXPECT_THAT(shown(run),
              HasSubstr("run-a, began with load 20, weights, from step 20 of run run-b\n"));
  run.clear_beginning();
  run.set_parent("run-b");
  EXPECT_THAT(shown(run), HasSubstr("run-a, in a copy of run run-b\n"));
  const json tree = json::parse(Mtctl(&server_, {"describe", "tiny", "-o", "json"}).out);
  EXPECT_EQ(tree.at("run").at("parent"), "run-b");
  EXPECT_THAT(shown(run), Not(HasSubstr("Other runs:")));
  run.mutable_other_runs()->set_runs(2);
  run.mutable_other_runs()->set_checkpoints(3);
  run.mutable_other_runs()->set_bytes(3 << 20);
  EXPECT_THAT(
      shown(run),
      ContainsRegex("Other runs: +3 checkpoints .3.0 MiB. of 2 other runs in its directory; "
                    "mtctl checkpoint list tiny .*delete tiny --run ID removes them\n"));
}

TEST_F(ViewsTest, CopiesAndSavesThatWereLeftOutAreShown) {
  v1::Job job = MakeJob("tiny", v1::RUNNING);
  job.mutable_spec()->mutable_checkpoint()->set_second("copies/tiny");
  job.mutable_second_copy()->set_step(20);
  job.mutable_second_copy()->set_error("No space left on device");
  server_.state().jobs = {job};
  const std::string text = Mtctl(&server_, {"describe", "tiny"}).out;
  EXPECT_THAT(text, ContainsRegex("Second copy: +step 20 in copies/tiny\n"));
  EXPECT_THAT(text, ContainsRegex("Last copy failed: +No space left on device\n"));
  v1::CheckpointInfo* saved = server_.state().checkpoints.add_checkpoints();
  saved->set_step(20);
  saved->set_stall_seconds(0.25);
  saved->set_skipped(3);
  const std::string wide = Mtctl(&server_, {"get", "checkpoints", "tiny", "-o", "wide"}).out;
  EXPECT_THAT(wide, ContainsRegex("STALL +SKIPPED"));
  EXPECT_THAT(wide, ContainsRegex("0\\.25 +3 "));
}

TEST_F(ViewsTest, TheLayoutOfAJobIsShown) {
  v1::Job job = MakeJob("tiny", v1::RUNNING);
  v1::Parallel* parallel = job.mutable_spec()->mutable_parallel();
  parallel->set_tensor(2);
  parallel->set_context(1);
  parallel->set_pipeline(2);
  parallel->set_data(1);
  parallel->set_sequence_parallel(true);
  parallel->set_schedule(v1::Parallel::SCHEDULE_1F1B);
  for (int rank = 0; rank < 4; ++rank) {
    job.add_ranks()->set_rank(rank);
    job.mutable_ranks(rank)->set_node("n1");
    job.mutable_ranks(rank)->set_slot(rank);
    job.mutable_ranks(rank)->set_state(v1::TRAINING);
  }
  job.mutable_last_step()->set_bubble(0.25);
  (*job.mutable_last_step()->mutable_phase_seconds())["pp_wait"] = 0.5;
  (*job.mutable_last_step()->mutable_phase_seconds())["forward"] = 1;
  (*job.mutable_last_step()->mutable_phase_seconds())["ckpt"] = 0;
  job.mutable_last_step()->set_tflops_per_slot(0.5);
  job.mutable_last_step()->set_tokens_per_second(8100);
  job.mutable_last_step()->set_step_seconds(0.25);
  job.mutable_first_step()->set_loss(10.5);
  (*job.mutable_last_step()->mutable_memory_bytes())["weights"] = 3 << 20;
  server_.state().jobs = {job};
  const std::string text = Mtctl(&server_, {"describe", "tiny"}).out;
  EXPECT_THAT(text, HasSubstr("Layout:           tp 2 x pp 2 x dp 1, sequence parallel, 1f1b\n"));
  EXPECT_THAT(text, HasSubstr("Phases, rank 0:   forward 1.000 s, pp_wait 0.500 s\n"));
  EXPECT_THAT(text,
              HasSubstr("Bubble:           25.0 % of the pipeline's time, mean over ranks\n"));
  EXPECT_THAT(text, ContainsRegex("Loss:             [0-9.]+ \\(first 10.500000\\)\n"));
  EXPECT_THAT(text, HasSubstr("Speed:            8.1k tokens/s, 0.5 TFLOP/s per slot, 0.250 s per "
                              "step\n"));
  EXPECT_THAT(text, HasSubstr("Memory, rank 0:   weights 3.0 MiB, process 0 B\n"));
  EXPECT_THAT(text, Not(HasSubstr("Skipped steps")));
  EXPECT_THAT(text, HasSubstr("  RANK  TP  PP  DP  NODE  SLOT  GPU  STATE     PID  EXIT\n"
                              "  0     0   0   0   n1    0     -    TRAINING  0    -\n"
                              "  1     1   0   0   n1    1     -    TRAINING  0    -\n"
                              "  2     0   1   0   n1    2     -    TRAINING  0    -\n"
                              "  3     1   1   0   n1    3     -    TRAINING  0    -\n"));
  EXPECT_THAT(Mtctl(&server_, {"get", "jobs", "-o", "wide"}).out,
              HasSubstr("tp 2 x pp 2 x dp 1, sequence parallel, 1f1b"));
  // Ranks without progress are listed with the position of their device.
  EXPECT_THAT(text, Not(HasSubstr("Without progress")));
  v1::RankStall* stall = server_.state().jobs[0].mutable_ranks(3)->mutable_stall();
  stall->set_since_us(base::ToUnixMicros(base::Clock::Real()->WallNow()) - 75'500'000);
  stall->set_mark("step 41, microbatch 2, chunk 0: forward; 5 marks enqueued behind it");
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny"}).out,
              ContainsRegex("\nWithout progress:\n  rank 3 \\(tp 1, pp 1\\) on n1: no progress for "
                            "7[5-9] s; device at step 41, microbatch 2, chunk 0: forward; 5 marks "
                            "enqueued behind it\n"));
  EXPECT_EQ(json::parse(Mtctl(&server_, {"describe", "tiny", "-o", "json"}).out)
                .at("ranks")
                .at(3)
                .at("stall")
                .at("mark"),
            stall->mark());
  // A job whose number of ranks does not match its mesh is shown nevertheless.
  server_.state().jobs[0].mutable_ranks()->RemoveLast();
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny"}).out, HasSubstr("  0     -   -   -   n1"));
}

TEST_F(ViewsTest, WaitForStateCheckpointOrEnd) {
  const v1::Job running = MakeJob("tiny", v1::RUNNING);
  v1::Job saved = running;
  saved.mutable_last_checkpoint()->set_step(30);
  server_.state().jobs = {running};
  server_.state().watch = {running, saved};
  EXPECT_EQ(Mtctl(&server_, {"wait", "tiny", "--for", "state=running"}).code, 0);
  EXPECT_EQ(Mtctl(&server_, {"wait", "tiny", "--for=checkpoint=25"}).code, 0);
  const Ran late = Mtctl(&server_, {"wait", "tiny", "--for=checkpoint=31", "--timeout", "0.3"});
  EXPECT_EQ(late.code, kExitTimedOut);
  EXPECT_THAT(late.err, HasSubstr("it goes on"));
  EXPECT_EQ(Mtctl(&server_, {"wait", "tiny", "--timeout", "0.3"}).code, kExitTimedOut);
  v1::Job failed = MakeJob("tiny", v1::FAILED);
  failed.set_message("rank 1 died");
  server_.state().watch = {running, failed};
  EXPECT_EQ(Mtctl(&server_, {"wait", "tiny"}).code, kExitJobFailed);
  const Ran missed = Mtctl(&server_, {"wait", "tiny", "--for", "state=PAUSED_HELD"});
  EXPECT_EQ(missed.code, kExitJobFailed);
  EXPECT_THAT(missed.err, HasSubstr("rank 1 died"));
  server_.state().watch = {MakeJob("tiny", v1::SUCCEEDED)};
  EXPECT_EQ(Mtctl(&server_, {"wait", "tiny"}).code, 0);
  EXPECT_EQ(Mtctl(&server_, {"wait", "tiny", "--for", "state=PAUSED_HELD"}).code, kExitError);
  for (const char* bad : {"state=DANCING", "checkpoint=x", "checkpoint=0", "mood=good"})
    EXPECT_EQ(Mtctl(&server_, {"wait", "tiny", "--for", bad}).code, kExitUsage) << bad;
}

// The metrics stream stalls and never ends; the end of the job is noticed nevertheless.
TEST_F(ViewsTest, FollowDoesNotHangOnAStalledMetricsStream) {
  server_.state().metrics_stall = true;
  v1::Job done = MakeJob("tiny", v1::SUCCEEDED);
  done.mutable_last_step()->set_step(100);
  server_.state().watch = {MakeJob("tiny", v1::RUNNING), done};
  const std::string path =
      testing::TempDir() + "/mt-client-follow-" + std::to_string(::getpid()) + ".yaml";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(
      "name: tiny\nmodel: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32}\n"
      "data: {path: [text], tokenizer: {type: byte}}\n"
      "training: {train_iters: 4, micro_batch_size: 2, global_batch_size: 8}\n"
      "optimizer: {lr: 1.0e-3}\n",
      file);
  std::fclose(file);
  const Ran ran = Mtctl(&server_, {"submit", "-f", path, "--follow"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("100/100"));
  EXPECT_THAT(ran.err, HasSubstr("job tiny SUCCEEDED"));
  EXPECT_THAT(ran.out, Not(HasSubstr("\033")));
  std::remove(path.c_str());
}

TEST_F(ViewsTest, MetricsFromHistoryAndLive) {
  server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  v1::History& history = server_.state().history;
  auto* loss = history.add_columns();
  loss->set_name("loss");
  for (int step = 1; step <= 3; ++step) {
    history.add_steps(step);
    history.add_times_us(step * 1000);
    history.add_epochs(1);
    loss->add_last(1.0 / step);
  }
  const Ran lines =
      Mtctl(&server_, {"metrics", "tiny", "--steps", "1:", "--points", "50", "-o", "jsonl"});
  EXPECT_EQ(lines.code, 0) << lines.err;
  EXPECT_EQ(lines.out,
            "{\"step\":1,\"time_us\":1000,\"epoch\":1,\"loss\":1.0}\n"
            "{\"step\":2,\"time_us\":2000,\"epoch\":1,\"loss\":0.5}\n"
            "{\"step\":3,\"time_us\":3000,\"epoch\":1,\"loss\":0.3333333333333333}\n");
  EXPECT_EQ(server_.state().asked.from_step(), 1);
  EXPECT_EQ(server_.state().asked.to_step(), 0);
  EXPECT_EQ(server_.state().asked.points(), 50);
  EXPECT_THAT(Mtctl(&server_, {"metrics", "tiny", "--since", "10m"}).out, HasSubstr("0.5000"));
  EXPECT_GT(server_.state().asked.since_us(), 0);
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--names", "nope"}).code, kExitInvalidInput);
  for (const char* bad : {"5:2", "x", ":", "0:3", "-1:"}) {
    const Ran ran = Mtctl(&server_, {"metrics", "tiny", std::string("--steps=") + bad});
    EXPECT_EQ(ran.code, std::string(bad) == ":" ? 0 : kExitUsage) << bad;
  }
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "-w", "--since", "1m"}).code, kExitUsage);
}

TEST_F(ViewsTest, MetricsWatchSaysWhatWasDropped) {
  server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  v1::MetricsChunk chunk;
  chunk.set_dropped(17);
  chunk.add_steps()->set_step(41);
  chunk.mutable_steps(0)->set_loss(2.25);
  server_.state().metrics = {chunk};
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--watch", "-o", "csv", "--names", "loss"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "step,time_us,epoch,loss,validation_loss,validation_perplexity,"
            "validation_bits_per_byte\r\n41,0,0,2.25,,,\r\n");
  EXPECT_THAT(ran.err, HasSubstr("17 steps left out"));
}

TEST_F(ViewsTest, ExplainNeedsNoCoordinator) {
  const Ran field = Mtctl(nullptr, {"explain", "job.optimizer.lr"});
  EXPECT_EQ(field.code, 0);
  EXPECT_THAT(field.out, HasSubstr("--lr"));
  EXPECT_THAT(Mtctl(nullptr, {"explain", "--markdown"}).out, HasSubstr("| `parallel.tensor` |"));
  EXPECT_EQ(Mtctl(nullptr, {"explain", "job.paralel"}).code, kExitInvalidInput);
  EXPECT_EQ(Mtctl(nullptr, {"explain", "job", "--markdown"}).code, kExitUsage);
}

}  // namespace
}  // namespace mt::client
