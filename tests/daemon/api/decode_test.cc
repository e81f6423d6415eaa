// Texts that a running job is asked for: the way to the ranks and back, what is refused, which of
// them are kept, and what becomes of a request whose job ends.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class DecodeTest : public CoreTest {
 protected:
  static v1::JobSpec WriterJob(const std::string& name) {
    v1::JobSpec spec = TinyJob(name, 1);
    spec.mutable_training()->mutable_eval()->set_decode_tokens(8);
    return spec;
  }
  v1::Job StartWriter(Worker& worker, const std::string& name) {
    v1::Job job = Submit(WriterJob(name));
    Accept(worker, job);
    Report(worker, RankMessage(job, 0, v1::READY));
    job = Get(job.uid());
    EXPECT_EQ(job.state(), v1::RUNNING) << job.message();
    return job;
  }
  StatusOr<v1::Operation> Ask(const std::string& uid, const v1::Generate& generate = {}) {
    v1::DecodeRequest request;
    *request.mutable_generate() = generate;
    return Do(&VerbsApi::Decode, request, uid);
  }
  // The ranks have written this behind step 6.
  void Answer(Worker& worker, const std::string& text) {
    v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::DECODE), 5, 6);
    auto& decoded = *done.mutable_job_report()->mutable_command_done()->mutable_decoded();
    decoded.add_texts()->set_text(text);
    decoded.mutable_texts(0)->set_finish("tokens");
    Report(worker, done);
  }
};

TEST_F(DecodeTest, GoesToTheRanksAndComesBackAsAnOperation) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  v1::Generate generate;
  generate.add_prompts("Once");
  generate.set_temperature(0.5);
  generate.add_stops(".");
  const auto asked = Ask(job.uid(), generate);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->verb(), "decode");
  EXPECT_FALSE(asked->done());
  const v1::Generate sent = LastCommand(worker, v1::Command::DECODE).generate();
  EXPECT_EQ(sent.prompts(0), "Once");
  EXPECT_EQ(sent.temperature(), 0.5);
  EXPECT_EQ(sent.stops(0), ".");
  EXPECT_EQ(sent.tokens(), 64) << "the defaults are filled in";
  EXPECT_EQ(sent.seed(), 1234);
  Answer(worker, "upon");
  const v1::Operation done = Op(asked->name());
  EXPECT_TRUE(done.done());
  EXPECT_EQ(done.result(), "1 text after step 6");
  EXPECT_EQ(done.step(), 6);
  EXPECT_EQ(done.word_step(), 5);
  ASSERT_EQ(done.decoded().texts_size(), 1);
  EXPECT_EQ(done.decoded().texts(0).text(), "upon");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING) << "nothing of the job has changed";
}

TEST_F(DecodeTest, ItIsSentAgainAfterARestart) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  v1::Generate generate;
  generate.set_tokens(7);
  const auto asked = Ask(job.uid(), generate);
  ASSERT_TRUE(asked.ok()) << asked.status();
  StartCore();
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(LastCommand(worker, v1::Command::DECODE).generate().tokens(), 7);
  Answer(worker, "upon");
  StartCore();
  EXPECT_EQ(Op(asked->name()).decoded().texts(0).text(), "upon") << "it is on disk";
}

// A store and a message have room for a few texts of 1 MiB, and there may be many in a week.
TEST_F(DecodeTest, TheNewestOfAJobKeepsItsTexts) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  Worker beside = NewWorker("n2", 1);
  const v1::Job other = StartWriter(beside, "other");
  const auto first = Ask(job.uid());
  ASSERT_TRUE(first.ok()) << first.status();
  Answer(worker, "one");
  const auto kept = Ask(other.uid());
  ASSERT_TRUE(kept.ok()) << kept.status();
  Answer(beside, "of another job");
  const auto second = Ask(job.uid());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Op(first->name()).decoded().texts_size(), 1) << "until there are others";
  Answer(worker, "two");
  EXPECT_EQ(Op(first->name()).decoded().texts_size(), 0);
  EXPECT_TRUE(Op(first->name()).decoded().left_out());
  EXPECT_TRUE(Op(first->name()).done());
  EXPECT_EQ(Op(second->name()).decoded().texts(0).text(), "two");
  EXPECT_EQ(Op(kept->name()).decoded().texts(0).text(), "of another job");
  v1::ListOperationsResponse all;
  ASSERT_TRUE(core_->api().operations().List({}, &all).ok());
  EXPECT_EQ(all.operations_size(), 3);
  for (const v1::Operation& operation : all.operations()) {
    EXPECT_EQ(operation.decoded().texts_size(), 0);
    EXPECT_TRUE(operation.decoded().left_out());
  }
}

TEST_F(DecodeTest, WhatCannotBeWrittenIsRefusedByField) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  const auto refused = [&](const v1::Generate& generate) {
    const auto asked = Ask(job.uid(), generate);
    EXPECT_EQ(asked.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rpc::ReasonOf(asked.status()), "INVALID_REQUEST");
    return std::string(base::Message(asked.status()));
  };
  v1::Generate bad;
  bad.set_temperature(-1);
  EXPECT_NE(refused(bad).find("generate.temperature"), std::string::npos);
  bad.Clear();
  bad.set_samples(2);
  EXPECT_NE(refused(bad).find("generate.samples"), std::string::npos) << "nothing is drawn";
  bad.set_samples(65);
  bad.set_temperature(1);
  EXPECT_EQ(
      refused(bad),
      "65 texts (1 prompts, of each 65), and a job that trains writes at most 64 at once: ask "
      "for fewer, or have a checkpoint read");
  // One text has at most so many bytes by the field's own rule.
  bad.Clear();
  bad.add_prompts(std::string(200 << 10, 'a'));
  bad.add_stops(std::string((56 << 10) + 1, 'b'));
  EXPECT_NE(refused(bad).find("262145 bytes together"), std::string::npos);
  bad.Clear();
  bad.set_logprobs(true);
  EXPECT_NE(refused(bad).find("generate.logprobs"), std::string::npos);
  EXPECT_EQ(CountCommands(worker, v1::Command::DECODE), 0);
}

TEST_F(DecodeTest, OnlyAJobThatTrainsAndHasMemoryIsAsked) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job plain = StartRunning(worker, "plain", 1);
  const auto no_memory = Ask(plain.uid());
  EXPECT_EQ(rpc::ReasonOf(no_memory.status()), "NO_TEXT_MEMORY");
  EXPECT_NE(base::Message(no_memory.status()).find("training.eval.decode_tokens is 0"),
            std::string::npos);
  const v1::Job queued = Submit(WriterJob("waits"));
  const auto waits = Ask(queued.uid());
  EXPECT_EQ(rpc::ReasonOf(waits.status()), "WRONG_STATE");
  EXPECT_NE(base::Message(waits.status()).find("no step runs"), std::string::npos);
  v1::JobSpec reader;
  const auto faults = spec::ParseJob(
      "name: look\nkind: generate\nread: {checkpoint: default/demo}\nplacement: {device: cpu}\n",
      {}, &reader);
  ASSERT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  EXPECT_EQ(rpc::ReasonOf(Ask(Submit(reader).uid()).status()), "WRONG_KIND");
}

TEST_F(DecodeTest, OnceAtATimeAndNotWhileRanksAreHeld) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  ASSERT_TRUE(Ask(job.uid()).ok());
  const auto second = Ask(job.uid());
  EXPECT_EQ(rpc::ReasonOf(second.status()), "WRONG_STATE");
  EXPECT_NE(base::Message(second.status()).find("is under way"), std::string::npos);
  EXPECT_EQ(CountCommands(worker, v1::Command::DECODE), 1);
  Answer(worker, "one");
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 7, 8));
  Report(worker, RankMessage(job, 0, v1::HELD));
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  const auto held = Ask(job.uid());
  EXPECT_EQ(rpc::ReasonOf(held.status()), "WRONG_STATE");
  EXPECT_NE(base::Message(held.status()).find("its ranks are held"), std::string::npos);
}

TEST_F(DecodeTest, WhatTheRanksRefuseIsTold) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  const auto asked = Ask(job.uid());
  ASSERT_TRUE(asked.ok()) << asked.status();
  v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::DECODE), 5, 6);
  done.mutable_job_report()->mutable_command_done()->set_error("prompt 1 has 9 tokens");
  Report(worker, done);
  EXPECT_EQ(Op(asked->name()).error().message(), "nothing was written: prompt 1 has 9 tokens");
  EXPECT_EQ(Op(asked->name()).error().reason(), "WORD_REFUSED");
  EXPECT_TRUE(Ask(job.uid()).ok()) << "the way is free again";
}

TEST_F(DecodeTest, RanksThatEndOweIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartWriter(worker, "demo");
  const auto asked = Ask(job.uid());
  ASSERT_TRUE(asked.ok()) << asked.status();
  v1::PauseRequest pause;
  pause.set_mode(v1::PauseRequest::RELEASE);
  ASSERT_TRUE(Do(&VerbsApi::Pause, pause, job.uid()).ok());
  EXPECT_FALSE(Op(asked->name()).done());
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(Op(asked->name()).error().reason(), "JOB_ENDED");
  EXPECT_NE(Op(asked->name()).error().message().find("before they had written the texts"),
            std::string::npos)
      << Op(asked->name()).error().message();
}

}  // namespace
}  // namespace mt::daemon
