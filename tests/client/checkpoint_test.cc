// `mtctl checkpoint` on checkpoints of the real writer: what it says and its exit codes.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/verified.h"

namespace mt::client {
namespace {

using checkpoint::Cut;
using checkpoint::MakeState;
using testing::HasSubstr;
using testing::Not;

class CheckpointTest : public testing::Test {
 protected:
  std::string Save(int64_t step, Cut cut = Cut::kRows) const {
    return checkpoint::SaveState(directory_, MakeState(step), cut);
  }
  static Ran Run(std::vector<std::string> args) {
    args.insert(args.begin(), "checkpoint");
    return Mtctl(nullptr, args);
  }
  const checkpoint::TempDir dir_;
  const std::string directory_ = std::filesystem::canonical(dir_.path()).string() + "/ckpt";
};

TEST_F(CheckpointTest, SaveIsTheVerbWithAndWithoutItsName) {
  FakeCoordinator server;
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "tiny", "--reason", "before lunch"}).code, 0);
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "save", "tiny", "--wait"}).code, 0);
  // A job may have the name of a subcommand.
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "save", "list"}).code, 0);
  EXPECT_EQ(server.state().request_ids.size(), 3U);
  EXPECT_EQ(Mtctl(&server, {"checkpoint"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "save"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "tiny", "other"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "verify", dir_.path(), "other"}).code, kExitUsage);
  EXPECT_EQ(server.state().request_ids.size(), 3U);
}

TEST_F(CheckpointTest, SaveTakesATagAndMeta) {
  FakeCoordinator server;
  const auto label = [&server]() -> const v1::CheckpointLabel& {
    return server.state().triggered.label();
  };
  ASSERT_EQ(Mtctl(&server, {"checkpoint", "save", "tiny"}).code, 0);
  EXPECT_FALSE(server.state().triggered.has_label());
  ASSERT_EQ(Mtctl(&server, {"checkpoint", "save", "tiny", "--tag", "best", "--meta", "loss=3.2",
                            "--meta", "note=a = b"})
                .code,
            0);
  EXPECT_EQ(server.state().triggered.job().name(), "tiny");
  EXPECT_EQ(label().tag(), "best");
  ASSERT_EQ(label().meta_size(), 2);
  EXPECT_EQ(label().meta().at("loss"), "3.2");
  EXPECT_EQ(label().meta().at("note"), "a = b");
  // One value for each --meta: what follows is the job.
  ASSERT_EQ(Mtctl(&server, {"checkpoint", "--meta", "k=", "--tag", "v2", "tiny"}).code, 0);
  EXPECT_EQ(server.state().triggered.job().name(), "tiny");
  EXPECT_EQ(label().tag(), "v2");
  EXPECT_EQ(label().meta().at("k"), "");
  ASSERT_EQ(Mtctl(&server, {"checkpoint", "tiny", "--meta", "k=v"}).code, 0);
  EXPECT_EQ(label().tag(), "");
  EXPECT_EQ(label().meta_size(), 1);
  const size_t asked = server.state().request_ids.size();
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"checkpoint", "save", "tiny", "--meta", "loss"},
           {"checkpoint", "save", "tiny", "--meta", "=3"},
           {"checkpoint", "save", "tiny", "--meta", "k=1", "--meta", "k=2"},
           {"checkpoint", "save", "tiny", "--tag", ""},
           {"checkpoint", "tiny", "--meta", "loss"},
           {"checkpoint", "tiny", "--tag"},
           {"checkpoint", "--tag", "best", "save", "tiny"},
           {"checkpoint", "--meta", "k=v", "list", directory_}}) {
    const Ran ran = Mtctl(&server, wrong);
    EXPECT_EQ(ran.code, kExitUsage) << testing::PrintToString(wrong) << ran.err;
    EXPECT_NE(ran.err, "");
  }
  EXPECT_EQ(server.state().request_ids.size(), asked);
  // What a tag may be is the coordinator's to say.
  server.state().refuse = {grpc::StatusCode::INVALID_ARGUMENT, "a tag has 1 to 64 letters"};
  EXPECT_EQ(Mtctl(&server, {"checkpoint", "tiny", "--tag", "a b"}).code, kExitInvalidInput);
}

TEST_F(CheckpointTest, AJobsCheckpointsAreListedWithTagAndMeta) {
  FakeCoordinator server;
  server.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  v1::CheckpointInfo* plain = server.state().checkpoints.add_checkpoints();
  plain->set_step(10);
  plain->set_path("/ckpt/a");
  v1::CheckpointInfo* tagged = server.state().checkpoints.add_checkpoints();
  tagged->set_step(20);
  tagged->set_path("/ckpt/b");
  tagged->set_run("7d9f1c1e-3a54-4c0a-9a35-5b0f2f8b0f61");
  tagged->mutable_label()->set_tag("best");
  (*tagged->mutable_label()->mutable_meta())["note"] = "a\x1b[31m\nb";
  (*tagged->mutable_label()->mutable_meta())["loss"] = "3.2";
  const Ran table = Mtctl(&server, {"get", "checkpoints", "tiny"});
  EXPECT_THAT(table.out, testing::ContainsRegex("TAG +PATH\n.*-  +/ckpt/a\n.*best +/ckpt/b\n$"));
  EXPECT_THAT(table.out, Not(HasSubstr("META")));
  const Ran wide = Mtctl(&server, {"get", "checkpoints", "tiny", "-o", "wide"});
  EXPECT_THAT(wide.out, HasSubstr("loss=3.2,note=a\\x1b[31m b\n"));
  EXPECT_THAT(wide.out, HasSubstr("  7d9f1c1e-3a54-4c0a-9a35-5b0f2f8b0f61  "));
  EXPECT_THAT(table.out, Not(HasSubstr("7d9f1c1e")));
  const auto tree =
      nlohmann::json::parse(Mtctl(&server, {"get", "checkpoints", "tiny", "-o", "json"}).out);
  EXPECT_EQ(tree["checkpoints"][1]["label"]["tag"], "best");
  EXPECT_EQ(tree["checkpoints"][1]["label"]["meta"]["loss"], "3.2");
  EXPECT_EQ(tree["checkpoints"][1]["run"], "7d9f1c1e-3a54-4c0a-9a35-5b0f2f8b0f61");
  EXPECT_EQ(tree["checkpoints"][0]["run"], "");
  server.state().complete = [&](v1::Operation* operation) {
    *operation->mutable_checkpoint() = *tagged;
  };
  EXPECT_THAT(Mtctl(&server, {"checkpoint", "tiny", "--wait"}).out, HasSubstr(", tag best\n"));
}

TEST_F(CheckpointTest, TagsOnDiskAreShownAndKeepACheckpoint) {
  for (const int64_t step : {10, 20, 30}) Save(step);
  const std::string folder = directory_ + "/step-00000010-e0001";
  ASSERT_TRUE(checkpoint::WriteLabel(directory_, {10, 1},
                                     {.tag = "best", .meta = {{"note", "a\x1b[31m\nb"}}})
                  .ok());
  ASSERT_TRUE(
      checkpoint::WriteLabel(directory_, {20, 1}, {.tag = "", .meta = {{"loss", "3.2"}}}).ok());
  std::ofstream(directory_ + "/step-00000030-e0001/TAG.json") << "{";
  const Ran list = Run({"list", directory_});
  EXPECT_THAT(list.out, HasSubstr("TAG"));
  for (const char* cell : {"  best  ", "  (meta only)  ", "  unreadable  "})
    EXPECT_THAT(list.out, HasSubstr(cell));
  const auto tree = nlohmann::json::parse(Run({"list", directory_, "-o", "json"}).out);
  EXPECT_THAT(tree["checkpoints"][0]["label"]["fault"].get<std::string>(), HasSubstr("label"));
  EXPECT_EQ(tree["checkpoints"][1]["label"]["meta"]["loss"], "3.2");
  EXPECT_EQ(tree["checkpoints"][2]["label"]["tag"], "best");
  const Ran inspect = Run({"inspect", folder});
  EXPECT_THAT(inspect.out, testing::ContainsRegex("tag +best\n"));
  EXPECT_THAT(inspect.out, testing::ContainsRegex("meta note +a.x1b.31m b\n"));
  EXPECT_THAT(Run({"inspect", directory_ + "/step-00000030-e0001"}).out,
              HasSubstr("unreadable: not a checkpoint's label"));
  EXPECT_EQ(nlohmann::json::parse(Run({"inspect", folder, "-o", "json"}).out)["label"]["tag"],
            "best");
  const Ran refused = Run({"delete", folder, "--yes"});
  EXPECT_EQ(refused.code, kExitInvalidInput);
  EXPECT_THAT(refused.err, HasSubstr("has the tag best; untag it first"));
  EXPECT_EQ(Run({"copy", folder, dir_.File("copy")}).code, 0);
  EXPECT_EQ((*checkpoint::FindByTag(dir_.File("copy"), "best")).step, 10);
  EXPECT_EQ(Run({"untag", folder}).out, "untagged " + folder + "\n");
  const Ran none = Run({"untag", folder});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("has no tag"));
  EXPECT_EQ(Run({"delete", folder, "--yes"}).code, 0);
}

TEST_F(CheckpointTest, ListNamesCheckpointsAndWhatIsNone) {
  Save(10);
  Save(20, Cut::kWhole);
  std::filesystem::create_directories(directory_ + "/step-00000030-e0001.tmp");
  ASSERT_EQ(Run({"pin", directory_ + "/step-00000010-e0001", "--reason", "a\x1b[31m b"}).code, 0);
  ASSERT_TRUE(checkpoint::RaiseFence({.directory = directory_, .job_uid = "u", .epoch = 2}).ok());
  const Ran table = Run({"list", directory_});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("tp 1 x pp 1 x dp 1"));
  EXPECT_THAT(table.out, HasSubstr("a\\x1b[31m b"));
  EXPECT_THAT(table.out, HasSubstr("held by job u (epoch 2)"));
  EXPECT_LT(table.out.find("newest"), table.out.find("complete"));
  EXPECT_LT(table.out.find("complete"), table.out.find("no checkpoint: unfinished"));
  const auto tree = nlohmann::json::parse(Run({"list", directory_, "-o", "json"}).out);
  ASSERT_EQ(tree["checkpoints"].size(), 3U);
  EXPECT_EQ(tree["held_by"]["job_uid"], "u");
  EXPECT_EQ(tree["checkpoints"][0]["step"], 20);
  EXPECT_EQ(tree["checkpoints"][0]["newest"], true);
  EXPECT_EQ(tree["checkpoints"][1]["world_size"], 2);
  EXPECT_EQ(tree["checkpoints"][1]["pin"]["reason"], "a\x1b[31m b");
  EXPECT_EQ(tree["checkpoints"][2]["complete"], false);
  EXPECT_EQ(Run({"list", directory_, "-o", "name"}).out,
            directory_ + "/step-00000020-e0001\n" + directory_ + "/step-00000010-e0001\n");
  const Ran one = Run({"list", directory_ + "/step-00000010-e0001"});
  EXPECT_THAT(one.out, Not(HasSubstr("step-00000020")));
  const Ran none = Run({"list", dir_.path()});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("neither a checkpoint nor a directory of checkpoints"));
  EXPECT_EQ(Run({"list", directory_ + "/nothing"}).code, kExitInvalidInput);
}

TEST_F(CheckpointTest, TheRunOfACheckpointIsShown) {
  const std::string id = "7d9f1c1e-3a54-4c0a-9a35-5b0f2f8b0f61";
  checkpoint::SavedState state = MakeState(10);
  state.manifest.run = id;
  const std::string folder = checkpoint::SaveState(directory_, state);
  Save(20);
  const auto list = [this] {
    return nlohmann::json::parse(Run({"list", directory_, "-o", "json"}).out);
  };
  EXPECT_EQ(list()["checkpoints"][1]["run"], id);
  EXPECT_EQ(list()["checkpoints"][0]["run"], "") << "from before runs had ids";
  EXPECT_EQ(list()["runs_fault"], "");
  EXPECT_THAT(Run({"inspect", folder}).out, testing::ContainsRegex("run +" + id + "\n"));
  EXPECT_EQ(nlohmann::json::parse(Run({"inspect", folder, "-o", "json"}).out)["run"], id);
  // A list of runs that is damaged is named, and hides nothing.
  std::ofstream(directory_ + "/run.json") << "{";
  const Ran table = Run({"list", directory_});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr(directory_ + "/run.json: not a list of runs"));
  EXPECT_THAT(list()["runs_fault"].get<std::string>(), HasSubstr("run.json"));
  EXPECT_EQ(list()["checkpoints"].size(), 2U);
}

TEST_F(CheckpointTest, InspectTellsTheManifest) {
  const std::string folder = Save(10);
  const Ran text = Run({"inspect", folder});
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part :
       {"10, directory epoch 1", "tiny (9b1fc90f", "2 ranks", "bf16", "80 samples, 1280 tokens",
        "nothing: a cold start", "loss_scale", "65536"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  EXPECT_THAT(text.out, Not(HasSubstr("weights/cube")));
  EXPECT_THAT(Run({"inspect", folder, "--tensors"}).out, HasSubstr("[7, 4, 3]"));
  const auto tree = nlohmann::json::parse(Run({"inspect", folder, "--tensors", "-o", "json"}).out);
  EXPECT_EQ(tree["parameters"], 120);
  EXPECT_EQ(tree["reals"]["lr"], 0.001);
  EXPECT_EQ(tree["tensors"].size(), 4U);
  EXPECT_EQ(tree["tensors"][1]["slices"], 2);
  const Ran directory = Run({"inspect", directory_});
  EXPECT_EQ(directory.code, kExitInvalidInput);
  EXPECT_THAT(directory.err, HasSubstr("name one of them, such as the newest: " + folder));
  std::ofstream(folder + "/manifest.json") << "[1, 2";
  const Ran damaged = Run({"inspect", folder});
  EXPECT_EQ(damaged.code, kExitIo);
  EXPECT_THAT(damaged.err, HasSubstr("manifest.json: not a checkpoint manifest"));
}

TEST_F(CheckpointTest, VerifySaysIntactOrNamesTheDamage) {
  const std::string folder = Save(10);
  Save(20, Cut::kWhole);
  const Ran intact = Run({"verify", directory_});
  EXPECT_EQ(intact.code, 0) << intact.err;
  EXPECT_EQ(intact.out, "2 checkpoints, 12 slices, 2.1 KiB: intact\n");
  EXPECT_TRUE(checkpoint::IsVerified(folder));
  EXPECT_EQ(nlohmann::json::parse(Run({"inspect", folder, "-o", "json"}).out)["verified"],
            checkpoint::VerifiedAt(folder));
  checkpoint::FlipBit(folder + "/rank-00000.safetensors", -1);
  const Ran damaged = Run({"verify", directory_});
  EXPECT_EQ(damaged.code, kExitIo);
  EXPECT_THAT(damaged.out,
              HasSubstr(folder + "/rank-00000.safetensors: weights/norm[0:2]: damaged"));
  EXPECT_THAT(damaged.out, HasSubstr("1 fault, named above"));
  EXPECT_FALSE(checkpoint::IsVerified(folder)) << "it is not any more";
  EXPECT_TRUE(checkpoint::IsVerified(directory_ + "/step-00000020-e0001"));
  const Ran json = Run({"verify", folder, "-o", "json"});
  EXPECT_EQ(json.code, kExitIo);
  EXPECT_EQ(nlohmann::json::parse(json.out)["damage"][0]["slice"], "weights/norm[0:2]");
  EXPECT_EQ(Run({"verify", directory_ + "/step-00000020-e0001"}).code, 0);
}

TEST_F(CheckpointTest, DiffIsZeroForTheSameStateOnly) {
  const std::string a = Save(10, Cut::kColumns);
  const std::string b = checkpoint::SaveState(dir_.File("other"), MakeState(10), Cut::kBuckets);
  const Ran same = Run({"diff", a, b});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.out, "the same state: 4 tensors, 150 elements\n");
  auto state = MakeState(10);
  state.tensors["weights/cube"].values[50] += 0.5;
  state.tensors["weights/norm"].values[1] += 0.5;
  const std::string c = checkpoint::SaveState(dir_.File("third"), state, Cut::kRows);
  const Ran different = Run({"diff", a, c});
  EXPECT_EQ(different.code, kExitError);
  EXPECT_THAT(different.out, HasSubstr("2 of 4 tensors differ"));
  EXPECT_THAT(different.out, HasSubstr("[4, 0, 2]"));
  EXPECT_THAT(different.out, HasSubstr("different: 4 tensors"));
  const Ran limited = Run({"diff", a, c, "--limit", "1"});
  EXPECT_THAT(limited.out, HasSubstr("... and 1 more (--limit)"));
  EXPECT_THAT(limited.out, Not(HasSubstr("weights/norm")));
  const auto tree = nlohmann::json::parse(Run({"diff", a, c, "-o", "json"}).out);
  EXPECT_EQ(tree["different"][0]["tensor"], "weights/cube");
  EXPECT_EQ(tree["different"][0]["different_elements"], 1);
  EXPECT_EQ(tree["different"][0]["largest"], 0.5);
  EXPECT_EQ(Run({"diff", a, directory_}).code, kExitInvalidInput);
}

TEST_F(CheckpointTest, PinUnpinAndDelete) {
  for (const int64_t step : {10, 20, 30}) Save(step);
  const std::string oldest = directory_ + "/step-00000010-e0001";
  EXPECT_EQ(Run({"pin", oldest}).out, "pinned " + oldest + "\n");
  const Ran pinned = Run({"delete", oldest, "--yes"});
  EXPECT_EQ(pinned.code, kExitInvalidInput);
  EXPECT_THAT(pinned.err, HasSubstr("is pinned; unpin it first"));
  EXPECT_EQ(Run({"unpin", oldest}).out, "unpinned " + oldest + "\n");
  EXPECT_EQ(Run({"unpin", oldest}).code, kExitInvalidInput);
  ASSERT_TRUE(checkpoint::RaiseFence({.directory = directory_, .job_uid = "u", .epoch = 2}).ok());
  const Ran held = Run({"delete", oldest, "--yes"});
  EXPECT_EQ(held.code, kExitInvalidInput);
  EXPECT_THAT(held.err, HasSubstr("held by job u (epoch 2)"));
  const Ran unasked = Run({"delete", oldest, "--ended"});
  EXPECT_EQ(unasked.code, kExitUsage) << "no terminal, no --yes";
  EXPECT_THAT(unasked.err, HasSubstr("Remove checkpoint " + oldest));
  EXPECT_TRUE(base::Exists(oldest));
  EXPECT_EQ(Run({"delete", oldest, "--ended", "--yes"}).out, "removed " + oldest + "\n");
  EXPECT_FALSE(base::Exists(oldest));
  EXPECT_THAT(Run({"delete", directory_ + "/step-00000020-e0001", "--ended", "-y"}).err,
              HasSubstr("one of the two newest"));
  std::filesystem::create_directories(directory_ + "/step-00000005-e0001");
  EXPECT_EQ(Run({"pin", directory_ + "/step-00000005-e0001"}).code, kExitInvalidInput);
}

TEST_F(CheckpointTest, OtherRunsAreListedAndRemovedByTheirId) {
  const std::string old = "7d9f1c1e-3a54-4c0a-9a35-5b0f2f8b0f61";
  const auto save = [this](const std::string& run, int64_t step, int64_t epoch) {
    checkpoint::SavedState state = MakeState(step, epoch);
    state.manifest.run = run;
    checkpoint::SaveState(directory_, state);
  };
  for (const int64_t step : {10, 20, 30}) save(old, step, 1);
  save("0c6f6a59-6a0e-4a38-8a4e-0f3f0a1f3f0e", 5, 2);
  const Ran list = Run({"list", directory_});
  EXPECT_THAT(list.out, testing::ContainsRegex("of run " + old + ": 3 checkpoints, [0-9.]+ KiB\n"));
  EXPECT_THAT(list.out, HasSubstr("mtctl checkpoint delete " + directory_ + " --run ID\n"));
  EXPECT_THAT(list.out, Not(HasSubstr("of run 0c6f")));
  const auto tree = nlohmann::json::parse(Run({"list", directory_, "-o", "json"}).out);
  EXPECT_EQ(tree["run"], "0c6f6a59-6a0e-4a38-8a4e-0f3f0a1f3f0e");
  EXPECT_EQ(tree["other_runs"][0]["run"], old);
  EXPECT_EQ(tree["other_runs"][0]["checkpoints"], 3);
  EXPECT_THAT(Run({"list", directory_ + "/step-00000010-e0001"}).out, Not(HasSubstr("of run")));
  const Ran unasked = Run({"delete", directory_, "--run", old});
  EXPECT_EQ(unasked.code, kExitUsage) << "no terminal, no --yes";
  EXPECT_THAT(unasked.err, HasSubstr("Remove 1 folder ("));
  const Ran removed = Run({"delete", directory_, "--run", "7d9f", "--yes"});
  EXPECT_EQ(removed.code, 0) << removed.err;
  EXPECT_THAT(removed.out, HasSubstr("removed 1 folder ("));
  EXPECT_THAT(removed.out, HasSubstr("of run " + old + " in " + directory_ + "\n"));
  EXPECT_THAT(removed.out,
              HasSubstr("kept step-00000030-e0001: it is one of the two newest of its run\n"));
  const Ran again = Run({"delete", directory_, "--run", old, "-o", "json"});
  EXPECT_EQ(again.code, 0) << "there is nothing to ask for";
  EXPECT_EQ(nlohmann::json::parse(again.out)["kept"].size(), 2U);
  const Ran one = Run({"delete", directory_ + "/step-00000020-e0001", "--run", old, "--yes"});
  EXPECT_EQ(one.code, kExitInvalidInput);
  EXPECT_THAT(one.err, HasSubstr("is one checkpoint: give the directory"));
}

TEST_F(CheckpointTest, CopySaysWhere) {
  const std::string folder = Save(10);
  const std::string to = dir_.File("archive");
  const Ran copied = Run({"copy", folder, to});
  EXPECT_EQ(copied.code, 0) << copied.err;
  EXPECT_EQ(copied.out, "copied to " + to + "/step-00000010-e0001, every slice read back\n");
  EXPECT_EQ(Run({"diff", folder, to + "/step-00000010-e0001"}).code, 0);
  EXPECT_EQ(Run({"copy", folder, to}).code, kExitInvalidInput);
  checkpoint::FlipBit(folder + "/rank-00000.safetensors", -1);
  EXPECT_EQ(Run({"copy", folder, dir_.File("b")}).code, kExitIo);
}

}  // namespace
}  // namespace mt::client
