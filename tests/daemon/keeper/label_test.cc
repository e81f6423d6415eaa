// Tags and meta of checkpoints: what is refused, the way to the ranks and back, and how a tag moves
// in the job's list.
#include "common/base/plain_text.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

v1::CheckpointLabel LabelOf(const std::string& tag,
                            const std::map<std::string, std::string>& meta = {}) {
  v1::CheckpointLabel label;
  label.set_tag(tag);
  label.mutable_meta()->insert(meta.begin(), meta.end());
  return label;
}

class LabelTest : public CoreTest {
 protected:
  StatusOr<v1::Operation> Save(const std::string& uid, const v1::CheckpointLabel& label,
                               const std::string& id = base::NewUid()) {
    v1::TriggerCheckpointRequest request;
    *request.mutable_label() = label;
    return Do(&VerbsApi::TriggerCheckpoint, request, uid, id);
  }
  // Rank 0 has saved `step` as it was told, and labelled it.
  void Answer(Worker& worker, int64_t step) {
    const v1::Command command = LastCommand(worker, v1::Command::CHECKPOINT_NOW);
    v1::WorkerMessage done = DoneMessage(command, step - 1, step);
    v1::CheckpointInfo* saved =
        done.mutable_job_report()->mutable_command_done()->mutable_checkpoint();
    *saved = Saved(step);
    if (command.has_label()) *saved->mutable_label() = command.label();
    Report(worker, done);
  }
  // "6:best 9:" of the job's checkpoints; the newest once more behind "|".
  std::string Tags(const std::string& uid) {
    const v1::Job job = Get(uid);
    std::string text;
    for (const v1::CheckpointInfo& one : job.checkpoints())
      text += fmt::format("{}:{} ", one.step(), one.label().tag());
    return text +
           fmt::format("|{}:{}", job.last_checkpoint().step(), job.last_checkpoint().label().tag());
  }
  static std::string MessageOf(const StatusOr<v1::Operation>& refused) {
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
    EXPECT_EQ(rpc::ReasonOf(refused.status()), "INVALID_REQUEST");
    return base::Message(refused.status());
  }
};

TEST_F(LabelTest, ALabelGoesToTheRanksAndComesBackWithTheCheckpoint) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto save = Save(job.uid(), LabelOf("best", {{"loss", "3.2"}, {"note", "a b"}}));
  ASSERT_TRUE(save.ok()) << save.status();
  const v1::Command command = LastCommand(worker, v1::Command::CHECKPOINT_NOW);
  EXPECT_EQ(command.label().tag(), "best");
  EXPECT_EQ(command.label().meta().at("note"), "a b");
  Answer(worker, 6);
  const v1::Operation done = Op(save->name());
  EXPECT_EQ(done.result(), "step 6 is saved to /ckpt/step-6 with the tag best");
  EXPECT_EQ(done.checkpoint().label().meta().at("loss"), "3.2");
  EXPECT_EQ(Tags(job.uid()), "6:best |6:best");
  EXPECT_EQ(Get(job.uid()).checkpoints(0).label().meta().at("loss"), "3.2");
  ASSERT_EQ(Events("CheckpointTagged").size(), 1U);
  EXPECT_EQ(Events("CheckpointTagged")[0].message(), "step 6 has the tag best");
  EXPECT_EQ(Events("CheckpointTagged")[0].step(), 6);
  // Without a label, and with an empty one, there is none.
  ASSERT_TRUE(Save(job.uid(), {}).ok());
  EXPECT_FALSE(LastCommand(worker, v1::Command::CHECKPOINT_NOW).has_label());
  Answer(worker, 9);
  EXPECT_EQ(Tags(job.uid()), "6:best 9: |9:");
  const auto meta = Save(job.uid(), LabelOf("", {{"k", "v"}}));
  Answer(worker, 12);
  EXPECT_EQ(Op(meta->name()).result(), "step 12 is saved to /ckpt/step-12");
  EXPECT_EQ(Get(job.uid()).last_checkpoint().label().meta().at("k"), "v");
  EXPECT_EQ(Events("CheckpointTagged").back().message(), "step 12 has meta and no tag");
}

TEST_F(LabelTest, ItSurvivesTheCoordinator) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto save = Save(job.uid(), LabelOf("best", {{"loss", "3.2"}}));
  ASSERT_TRUE(save.ok()) << save.status();
  StartCore();
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  const v1::Command again = LastCommand(worker, v1::Command::CHECKPOINT_NOW);
  EXPECT_EQ(again.label().tag(), "best");
  EXPECT_EQ(again.label().meta().at("loss"), "3.2");
  Answer(worker, 6);
  StartCore();
  EXPECT_EQ(Tags(job.uid()), "6:best |6:best");
  EXPECT_EQ(Op(save->name()).checkpoint().label().tag(), "best");
}

TEST_F(LabelTest, ARequestIdStandsForItsLabelToo) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  std::map<std::string, std::string> meta;
  for (int i = 0; i < 32; ++i) meta["key" + std::to_string(i)] = std::to_string(i);
  const auto save = Save(job.uid(), LabelOf("best", meta), "id");
  ASSERT_TRUE(save.ok()) << save.status();
  // The same entries, put in the other way round.
  v1::CheckpointLabel same = LabelOf("best");
  for (auto entry = meta.rbegin(); entry != meta.rend(); ++entry)
    (*same.mutable_meta())[entry->first] = entry->second;
  const auto again = Save(job.uid(), same, "id");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name(), save->name());
  StartCore();
  EXPECT_EQ(Save(job.uid(), same, "id")->name(), save->name());
  EXPECT_EQ(rpc::ReasonOf(Save(job.uid(), LabelOf("other", meta), "id").status()),
            "REQUEST_ID_REUSED");
  meta["key7"] = "8";
  EXPECT_EQ(rpc::ReasonOf(Save(job.uid(), LabelOf("best", meta), "id").status()),
            "REQUEST_ID_REUSED");
}

TEST_F(LabelTest, ATagMovesInTheList) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  // As ranks do: first the save, then the answer with the label.
  ASSERT_TRUE(Save(job.uid(), LabelOf("best")).ok());
  Report(worker, SavedMessage(job, 6));
  EXPECT_EQ(Tags(job.uid()), "6: |6:");
  Answer(worker, 6);
  EXPECT_EQ(Tags(job.uid()), "6:best |6:best");
  EXPECT_EQ(Events("CheckpointSaved").size(), 1U);
  ASSERT_TRUE(Save(job.uid(), LabelOf("paper")).ok());
  Answer(worker, 9);
  ASSERT_TRUE(Save(job.uid(), LabelOf("best", {{"k", "v"}})).ok());
  Report(worker, SavedMessage(job, 12));
  EXPECT_EQ(Tags(job.uid()), "6:best 9:paper 12: |12:") << "nobody says yet that it moved";
  Answer(worker, 12);
  EXPECT_EQ(Tags(job.uid()), "6: 9:paper 12:best |12:best");
  EXPECT_EQ(Events("CheckpointTagged").back().message(),
            "step 12 has the tag best, which step 6 had before");
  // The same step again, under another name; and a plain report of it takes nothing.
  ASSERT_TRUE(Save(job.uid(), LabelOf("paper")).ok());
  Answer(worker, 12);
  EXPECT_EQ(Tags(job.uid()), "6: 9: 12:paper |12:paper");
  EXPECT_EQ(Get(job.uid()).last_checkpoint().label().meta_size(), 0);
  const size_t events = Events().size();
  Report(worker, SavedMessage(job, 12));
  EXPECT_EQ(Tags(job.uid()), "6: 9: 12:paper |12:paper");
  EXPECT_EQ(Events().size(), events);
  // Another job has tags of its own.
  Worker more = NewWorker("n2", 1);
  const v1::Job other = StartRunning(more, "other", 1);
  ASSERT_TRUE(Save(other.uid(), LabelOf("paper")).ok());
  Answer(more, 3);
  EXPECT_EQ(Tags(other.uid()), "3:paper |3:paper");
  EXPECT_EQ(Tags(job.uid()), "6: 9: 12:paper |12:paper");
}

TEST_F(LabelTest, RanksThatKnowNoTagsSaveAndTheOperationSaysSo) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto save = Save(job.uid(), LabelOf("best"));
  v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::CHECKPOINT_NOW), 5, 6);
  *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint() = Saved(6);
  Report(worker, done);
  const v1::Operation failed = Op(save->name());
  EXPECT_EQ(failed.error().reason(), "SAVE_FAILED");
  EXPECT_NE(failed.error().message().find("step 6 is saved to /ckpt/step-6, but not tagged"),
            std::string::npos)
      << failed.error().message();
  EXPECT_EQ(failed.checkpoint().step(), 6);
  EXPECT_EQ(Tags(job.uid()), "6: |6:");
}

TEST_F(LabelTest, WhatIsNoTagIsRefusedBeforeAnythingHappens) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const std::string uid = job.uid();
  for (const std::string& tag :
       {std::string("a b"), std::string("-a"), std::string(".a"), std::string("_a"),
        std::string("a/b"), std::string("\xC3\xA9"), std::string("a\n"), std::string("a\x1b[31m"),
        std::string(65, 'a')}) {
    const std::string message = MessageOf(Save(uid, LabelOf(tag)));
    EXPECT_NE(message.find("1 to 64 letters, digits"), std::string::npos) << message;
    EXPECT_TRUE(base::IsPlainText(message)) << tag;
  }
  EXPECT_NE(MessageOf(Save(uid, LabelOf("1200"))).find("taken for a step"), std::string::npos);
  EXPECT_NE(MessageOf(Save(uid, LabelOf("step-00000012-e0001"))).find("checkpoint's folder"),
            std::string::npos);
  EXPECT_NE(MessageOf(Save(uid, LabelOf("none"))).find("none means no tag"), std::string::npos);
  const auto refuse_meta = [&](const std::string& key, const std::string& value) {
    return MessageOf(Save(uid, LabelOf("best", {{key, value}})));
  };
  for (const char* key : {"", "a b", "-a", "a=b"})
    EXPECT_NE(refuse_meta(key, "v").find("a key"), std::string::npos) << key;
  EXPECT_NE(refuse_meta(std::string(65, 'k'), "v").find("a key"), std::string::npos);
  for (const std::string& value :
       {std::string("a\nb"), std::string("\x1b"), std::string("\xC2\x9B"), std::string("\xFF"),
        std::string(1'025, 'v')}) {
    EXPECT_NE(refuse_meta("k", value).find("the value of meta 'k'"), std::string::npos) << value;
  }
  std::map<std::string, std::string> many;
  for (int i = 0; i < 33; ++i) many["k" + std::to_string(i)] = "v";
  EXPECT_NE(MessageOf(Save(uid, LabelOf("", many))).find("at most 32 entries, not 33"),
            std::string::npos);
  EXPECT_EQ(CountCommands(worker, v1::Command::CHECKPOINT_NOW), 0);
  EXPECT_TRUE(Events("OperationStarted").empty());
  // The widest that is allowed.
  many.erase("k32");
  many["k0"] = std::string(1'024, 'v');
  many["k1"] = "";
  many["k2"] = "\xC3\xA9t\xC3\xA9 = summer";
  EXPECT_TRUE(Save(uid, LabelOf(std::string(63, 'a') + "-", many)).ok());
}

// The checkpoint is there, whatever became of its tag.
TEST_F(LabelTest, ATagThatIsNotWrittenFailsTheTagAndNotTheSave) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto save = Save(job.uid(), LabelOf("best"));
  ASSERT_TRUE(save.ok()) << save.status();
  v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::CHECKPOINT_NOW), 5, 6);
  *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint() = Saved(6);
  done.mutable_job_report()->mutable_command_done()->set_error("write TAG.json: no space left");
  Report(worker, done);
  EXPECT_EQ(Op(save->name()).error().message(),
            "step 6 is saved to /ckpt/step-6, but not tagged: write TAG.json: no space left");
  EXPECT_EQ(Op(save->name()).checkpoint().step(), 6);
  EXPECT_EQ(Tags(job.uid()), "6: |6:");
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
}

}  // namespace
}  // namespace mt::daemon
