// What a job names is opened below its root: links that leave it are refused by name, links that
// stay are followed, and no field of a job that names a path is forgotten here.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/train/job_data/job_tokenizer.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;
namespace pb = google::protobuf;

class PathsTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    fs::create_directories(outside_);
  }
  std::string Data(const std::string& name) const { return dir_.path() + "/data/" + name; }
  std::string Saved(const std::string& name) const { return dir_.path() + "/checkpoints/" + name; }
  // Moves a file or folder out of its root and leaves a link.
  void MoveOut(const std::string& path) {
    const std::string to = outside_ + "/" + fs::path(path).filename().string();
    fs::rename(path, to);
    fs::create_symlink(to, path);
  }
  // The job is refused for the link, as a fault of its user.
  void ExpectRefused(const std::vector<std::string>& overrides, const std::string& link) {
    const RankOutcome outcome = Run(overrides)[0];
    EXPECT_FALSE(outcome.created) << link;
    const std::string message = base::Message(outcome.result.status);
    EXPECT_EQ(outcome.result.status.code(), absl::StatusCode::kPermissionDenied) << message;
    EXPECT_NE(message.find(link + " is a link to "), std::string::npos) << message;
    EXPECT_NE(message.find("outside of the root"), std::string::npos) << message;
    EXPECT_EQ(failure::CauseOf(outcome.result.status), failure::Cause::kUserError);
  }
  void ExpectRuns(const std::vector<std::string>& overrides) {
    const RankOutcome outcome = Run(overrides)[0];
    EXPECT_TRUE(outcome.result.status.ok()) << outcome.result.status;
  }

  const std::string outside_ = dir_.path() + "/outside";
};

TEST_F(PathsTest, TokenFilesStayBelowTheDataRoot) {
  for (const char* end : {".idx", ".bin"}) {
    MoveOut(Data("text") + end);
    ExpectRefused({}, Data("text") + end);
    fs::remove(Data("text") + end);
    fs::rename(outside_ + "/text" + end, Data("inside") + end);
    fs::create_symlink(std::string("inside") + end, Data("text") + end);
  }
  ExpectRuns({"training.train_iters=2"});
}

TEST_F(PathsTest, EvaluationDataStaysBelowTheDataRoot) {
  WriteTokens(Data("valid"), 40);
  const std::vector<std::string> job = {
      "data={train: [text], valid: [valid], tokenizer: {type: byte}}",
      "training.eval.every_iters=2", "training.train_iters=2"};
  ExpectRuns(job);
  MoveOut(Data("valid.bin"));
  ExpectRefused(job, Data("valid.bin"));
}

TEST_F(PathsTest, FilesOfTheTokenizerStayBelowTheDataRoot) {
  for (const char* name : {"file.json", "vocab.json", "merges.txt"})
    ASSERT_TRUE(base::WriteFileAtomic(Data(name), "{}").ok());
  const auto refused = [&](const std::string& tokenizer, const std::string& name) {
    MoveOut(Data(name));
    megatrain::v1::JobSpec job = TinyJob({"data.tokenizer=" + tokenizer});
    const Status status = SettleVocabulary(dir_.path() + "/data", &job);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_NE(base::Message(status).find(Data(name) + " is a link to "), std::string::npos)
        << status;
  };
  refused("{type: hf, file: file.json}", "file.json");
  refused("{type: gpt2_bpe, vocab: vocab.json, merges: merges.txt}", "vocab.json");
  fs::remove(Data("vocab.json"));
  fs::rename(outside_ + "/vocab.json", Data("vocab.json"));
  refused("{type: gpt2_bpe, vocab: vocab.json, merges: merges.txt}", "merges.txt");
}

TEST_F(PathsTest, TheIndexCacheStaysBelowItsRoot) {
  ExpectRuns({"training.train_iters=2", "checkpoint.directory=none"});
  const std::string cache = dir_.path() + "/cache";
  std::string index;
  for (const auto& entry : fs::directory_iterator(cache + "/index")) index = entry.path().string();
  ASSERT_FALSE(index.empty());
  // A link in place of an index is not followed, but replaced.
  MoveOut(index);
  ExpectRuns({"training.train_iters=2", "checkpoint.directory=none"});
  EXPECT_FALSE(fs::is_symlink(index));
  MoveOut(cache + "/index");
  ExpectRefused({}, cache + "/index");
}

TEST_F(PathsTest, CheckpointsStayBelowTheCheckpointRoot) {
  const std::vector<std::string> job = {"checkpoint.every_iters=10"};
  ExpectRuns(job);
  ASSERT_EQ(StepsOnDisk(), (std::vector<int64_t>{10, 20}));
  const std::string newest = Saved("tiny/step-00000020-e0001");
  // Damaged or not: what is refused is the way out.
  for (const std::string& file : {newest + "/manifest.json", newest, Saved("tiny/FENCE"),
                                  Saved("tiny/FENCE.lock"), Saved("tiny/run.json")}) {
    SCOPED_TRACE(file);
    ASSERT_TRUE(fs::exists(file));
    MoveOut(file);
    ExpectRefused(job, file);
    fs::remove(file);
    fs::rename(outside_ + "/" + fs::path(file).filename().string(), file);
  }
  for (const auto& entry : fs::directory_iterator(newest)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string shard = entry.path().string();
    MoveOut(shard);
    ExpectRefused(job, shard);
    fs::remove(shard);
    fs::rename(outside_ + "/" + entry.path().filename().string(), shard);
    break;
  }
  // Archived elsewhere below the root, a checkpoint is still found.
  fs::create_directories(Saved("archive"));
  fs::rename(newest, Saved("archive/step-00000020-e0001"));
  fs::create_symlink("../archive/step-00000020-e0001", newest);
  EXPECT_EQ(Run(job)[0].seen.infos.at(0).resumed_from_step, 20);
}

TEST_F(PathsTest, TheDirectoryAndWhatIsLoadedStayBelowTheCheckpointRoot) {
  ExpectRuns({"checkpoint.every_iters=10"});
  MoveOut(Saved("tiny"));
  ExpectRefused({}, Saved("tiny"));
  ExpectRefused({"checkpoint.directory=branch", "checkpoint.load=tiny"}, Saved("tiny"));
  ExpectRefused({"checkpoint.directory=branch", "checkpoint.load=tiny/step-00000010-e0001"},
                Saved("tiny"));
  // The fence of a directory that is only loaded from.
  fs::create_directories(Saved("other"));
  fs::create_symlink("/etc/passwd", Saved("other/FENCE"));
  ExpectRefused({"checkpoint.directory=branch", "checkpoint.load=other"}, Saved("other/FENCE"));
}

TEST_F(PathsTest, TheSecondDirectoryStaysBelowTheCheckpointRoot) {
  fs::create_directories(Saved("copies"));
  MoveOut(Saved("copies"));
  ExpectRefused({"checkpoint.second=copies"}, Saved("copies"));
  ExpectRefused({"checkpoint.second=copies/tiny"}, Saved("copies"));
  EXPECT_TRUE(fs::is_empty(outside_ + "/copies"));
}

// A field of a job that names a path is handled by a test above, or is not built yet; the folder of
// event files, which the worker agent opens, by tests/worker/node/tensorboard; those of jobs that
// read by tests/worker/rank.
TEST_F(PathsTest, EveryFieldThatNamesAPathIsKnown) {
  namespace v1 = megatrain::v1;
  std::set<std::string> found;
  std::vector<const pb::Descriptor*> open = {v1::JobSpec::descriptor()};
  while (!open.empty()) {
    const pb::Descriptor* message = open.back();
    open.pop_back();
    for (int i = 0; i < message->field_count(); ++i) {
      const pb::FieldDescriptor* field = message->field(i);
      const v1::FieldRule& rule = field->options().GetExtension(v1::rule);
      if (rule.root() != v1::ROOT_NONE && rule.since() != v1::FEATURE_LATER) {
        found.insert(field->full_name());
      }
      if (field->message_type() != nullptr) open.push_back(field->message_type());
    }
  }
  EXPECT_EQ(found, (std::set<std::string>{
                       "megatrain.v1.Checkpoint.directory", "megatrain.v1.Checkpoint.load",
                       "megatrain.v1.Checkpoint.second", "megatrain.v1.Data.Source.file",
                       "megatrain.v1.Data.Source.prefix", "megatrain.v1.Data.Tokenizer.file",
                       "megatrain.v1.Data.Tokenizer.merges", "megatrain.v1.Data.Tokenizer.vocab",
                       "megatrain.v1.Data.cache", "megatrain.v1.Eval.file",
                       "megatrain.v1.Read.checkpoint", "megatrain.v1.Telemetry.tensorboard"}));
}

}  // namespace
}  // namespace mt::train
