// New files of exports: what has its name is whole, two at once do not meet, and what has come to
// be there meanwhile stays unless it is to be replaced.
#include "worker/hf/new_files.h"

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/hf/hf_models.h"
#include "tests/worker/hf/parameter_rig.h"
#include "worker/hf/export.h"
#include "worker/hf/model_files.h"

namespace mt::hf {
namespace {

using checkpoint::TempDir;

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out.insert(entry.path().filename().string());
  return out;
}

bool AnyName(const std::string& /*name*/) { return true; }

TEST(HfNewFiles, HaveTheirNamesWhenAllAreWhole) {
  const TempDir dir;
  {
    NewFiles files(dir.path());
    ASSERT_TRUE(base::WriteFileAtomic(files.Add("weights"), "w").ok());
    ASSERT_TRUE(files.AddText("text", "t").ok());
    EXPECT_FALSE(base::Exists(dir.File("weights")));
    EXPECT_FALSE(base::Exists(dir.File("text")));
    ASSERT_TRUE(files.Commit(AnyName).ok());
  }
  EXPECT_EQ(NamesIn(dir.path()), (std::set<std::string>{"weights", "text"}));
  EXPECT_EQ(base::ReadFile(dir.File("weights")).value(), "w");
  {
    NewFiles files(dir.path());
    ASSERT_TRUE(files.AddText("text", "other").ok());
    EXPECT_EQ(NamesIn(dir.path()).size(), 3U);
  }
  EXPECT_EQ(NamesIn(dir.path()), (std::set<std::string>{"weights", "text"})) << "given up";
  EXPECT_EQ(base::ReadFile(dir.File("text")).value(), "t");
}

TEST(HfNewFiles, OfTwoThatReplaceTheLaterOneStays) {
  const TempDir dir;
  NewFiles first(dir.path());
  ASSERT_TRUE(first.AddText("text", "first").ok());
  {
    NewFiles second(dir.path());
    ASSERT_TRUE(second.AddText("text", "second").ok());
    ASSERT_TRUE(second.Commit({}).ok());
    EXPECT_EQ(base::ReadFile(dir.File("text")).value(), "second");
  }
  ASSERT_TRUE(first.Commit({}).ok());
  EXPECT_EQ(base::ReadFile(dir.File("text")).value(), "first");
  EXPECT_EQ(NamesIn(dir.path()).size(), 1U);
}

TEST(HfNewFiles, WhatHasComeToBeThereStays) {
  const TempDir dir;
  {
    NewFiles files(dir.path());
    for (const char* const name : {"free", "a", "b", "c"})
      ASSERT_TRUE(files.AddText(name, "new").ok());
    ASSERT_TRUE(base::WriteFileAtomic(dir.File("b"), "another's").ok());
    const Status status = files.Commit([](const std::string& name) { return name != "free"; });
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    EXPECT_NE(base::Message(status).find(dir.File("b")), std::string::npos) << status;
    EXPECT_NE(base::Message(status).find("--overwrite"), std::string::npos) << status;
  }
  EXPECT_EQ(NamesIn(dir.path()), (std::set<std::string>{"b"})) << "a has no name any more";
  EXPECT_EQ(base::ReadFile(dir.File("b")).value(), "another's");
}

// A second export to the folder while the first is under way, in one file or in shards.
TEST(HfExport, OfTwoAtOnceOneIsThereAsAWhole) {
  const auto job = JobOf(kLlamaModel);
  for (const int64_t shard_bytes : {int64_t{1} << 30, int64_t{20'000}}) {
    const TempDir dir;
    const auto zeros = Save(dir.File("zeros"), job, Filled(job, 0));
    const auto ones = Save(dir.File("ones"), job, Filled(job, 1));
    const std::string to = dir.File("hf");
    for (const bool overwrite : {false, true}) {
      ExportArgs late{.from = zeros, .to = to, .overwrite = overwrite};
      bool nested = false;
      late.progress = [&](int64_t /*done*/, int64_t /*total*/) {
        if (std::exchange(nested, true)) return;
        const auto other = Export(
            {.from = ones, .to = to, .max_shard_bytes = shard_bytes, .overwrite = overwrite});
        EXPECT_TRUE(other.ok()) << other.status();
      };
      const Status status = Export(late).status();
      EXPECT_EQ(status.code(), overwrite ? absl::StatusCode::kOk : absl::StatusCode::kAlreadyExists)
          << status;
      const auto files = ModelFiles::Open(to);
      ASSERT_TRUE(files.ok()) << files.status();
      EXPECT_EQ(ReadAll(*files).at("layers.1.ffn.up.weight").back(), overwrite ? 0.0F : 1.0F);
      for (const std::string& name : NamesIn(to))
        EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
    }
  }
}

// Between the look for a model, before the first byte, and the names.
TEST(HfExport, AModelThatHasComeToBeThereStays) {
  const TempDir dir;
  const auto job = JobOf("position: learned");
  const auto place = Save(dir.File("run"), job, Filled(job, 1));
  for (const std::string name :
       {"config.json", "model.safetensors", "model-00001-of-00009.safetensors"}) {
    const std::string to = dir.File("of-" + name);
    ExportArgs args{.from = place, .to = to};
    args.progress = [&](int64_t /*done*/, int64_t /*total*/) {
      EXPECT_TRUE(base::WriteFileAtomic(base::JoinPath(to, name), "mine").ok());
    };
    EXPECT_EQ(Export(args).status().code(), absl::StatusCode::kAlreadyExists) << name;
    EXPECT_EQ(NamesIn(to), std::set<std::string>{name});
    EXPECT_EQ(base::ReadFile(base::JoinPath(to, name)).value(), "mine");
  }
}

}  // namespace
}  // namespace mt::hf
