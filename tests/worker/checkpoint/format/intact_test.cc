// Which checkpoint of a run is taken: the newest whole one, past damage, never another run's.
#include "worker/checkpoint/format/intact.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

constexpr char kMine[] = "11111111-1111-4111-8111-111111111111";
constexpr char kTheirs[] = "22222222-2222-4222-9222-222222222222";

class IntactTest : public testing::Test {
 protected:
  void Save(const CheckpointId& id, const std::string& run) const {
    const double value = 1;
    SaveArgs args;
    args.directory = dir_.path();
    args.manifest.step = id.step;
    args.manifest.epoch = id.epoch;
    args.manifest.run = run;
    args.manifest.spec_json = "{}";
    args.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {1},
                    .offset = {0},
                    .shape = {1},
                    .data = &value}};
    const auto saved = SaveCheckpoint(args);
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  std::string File(const CheckpointId& id, const char* name) const {
    return dir_.path() + "/" + FolderName(id) + "/" + name;
  }
  IntactChoice Choose(const DamagedCheckpoints& damaged = {}) const {
    const auto choice = ChooseIntact({.directory = dir_.path(),
                                      .run = kMine,
                                      .candidates = {{30, 1}, {20, 1}, {10, 1}},
                                      .damaged = damaged,
                                      .open = {}});
    EXPECT_TRUE(choice.ok()) << choice.status();
    return *choice;
  }

  TempDir dir_;
};

TEST_F(IntactTest, TheNewestIsTakenAndNoneOfAnotherRun) {
  Save({10, 1}, "");
  Save({20, 1}, kMine);
  Save({30, 1}, kTheirs);
  EXPECT_EQ(Choose().load, (CheckpointId{20, 1})) << "a copy lies in the same epoch";
  EXPECT_TRUE(Choose().damaged.empty());
}

TEST_F(IntactTest, DamageIsPassedOverAndToldNewestFirst) {
  for (const int64_t step : {10, 20, 30}) Save({step, 1}, kMine);
  const IntactChoice known = Choose({{{30, 1}, "a digest is another one"}});
  EXPECT_EQ(known.load, (CheckpointId{20, 1}));
  EXPECT_EQ(known.damaged,
            std::vector<std::string>{"step-00000030-e0001: a digest is another one"});
  std::filesystem::remove(File({30, 1}, "rank-00000.json"));
  std::ofstream(File({20, 1}, "manifest.json")) << "{";
  const IntactChoice choice = Choose();
  EXPECT_EQ(choice.load, (CheckpointId{10, 1}));
  ASSERT_EQ(choice.damaged.size(), 2U);
  EXPECT_NE(choice.damaged[0].find("step-00000030-e0001"), std::string::npos);
  EXPECT_NE(choice.damaged[1].find("step-00000020-e0001"), std::string::npos);
  std::filesystem::resize_file(File({10, 1}, "rank-00000.safetensors"), 5);
  EXPECT_EQ(Choose().load, std::nullopt);
  EXPECT_EQ(Choose().damaged.size(), 3U);
}

// It is whole, for a program that can read it: nothing older is taken.
TEST_F(IntactTest, ANewerFormatIsNoDamage) {
  Save({20, 1}, kMine);
  Save({30, 1}, kMine);
  Save({10, 1}, kMine);
  std::string text = base::ReadFile(File({30, 1}, "manifest.json")).value();
  text.replace(text.find("\"version\": ") + 11, 1, "99");
  ASSERT_TRUE(base::WriteFileAtomic(File({30, 1}, "manifest.json"), text).ok());
  const Status status = ChooseIntact({.directory = dir_.path(),
                                      .run = kMine,
                                      .candidates = {{30, 1}, {20, 1}},
                                      .damaged = {},
                                      .open = {}})
                            .status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(base::Message(status).find("step-00000030-e0001"), std::string::npos) << status;
}

}  // namespace
}  // namespace mt::checkpoint
