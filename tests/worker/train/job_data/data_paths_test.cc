// Where the data sets of a job lie, and which of a blend's are left out.
#include "worker/train/job_data/data_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatrain/v1/job.pb.h"
#include "tests/worker/data/temp_data.h"

namespace mt::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a rank of datatrove without documents leaves.
void WriteEmptyPair(const std::string& prefix) {
  data::WriteDataset(prefix, {}, data::TokenType::kU16, [](int64_t, int64_t) { return 0; });
  ASSERT_EQ(std::filesystem::file_size(prefix + ".idx"), 42U);
  ASSERT_EQ(std::filesystem::file_size(prefix + ".bin"), 0U);
}

class DataPathsTest : public ::testing::Test {
 protected:
  DataPathsTest() {
    data::NumberedDataset(dir_.Path("a"), {30, 40});
    data::NumberedDataset(dir_.Path("b"), {50});
    WriteEmptyPair(dir_.Path("none"));
    WriteEmptyPair(dir_.Path("nothing"));
  }
  void Blend(const std::vector<std::string>& prefixes, bool weights) {
    job_.mutable_data()->clear_path();
    for (const std::string& prefix : prefixes) {
      auto* source = job_.mutable_data()->add_path();
      source->set_prefix(prefix);
      if (weights) source->set_weight(static_cast<double>(prefix.size()));
    }
  }
  std::vector<std::string> Names() const {
    const auto path = DataPathOf(dir_.path(), job_, spec::Split::kTrain);
    EXPECT_TRUE(path.ok()) << path.status();
    std::vector<std::string> names;
    for (const data::DataMember& member : *path)
      names.push_back(std::filesystem::path(member.prefix).filename());
    return names;
  }
  std::string Said() const {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(SayEmptyPairs(dir_.path(), job_).ok());
    return testing::internal::GetCapturedStderr();
  }

  const data::TempDir dir_;
  megatrain::v1::JobSpec job_;
};

TEST_F(DataPathsTest, EmptyPairsAreLeftOutOfABlendAndNamedOnce) {
  for (const bool weights : {false, true}) {
    Blend({"none", "a", "b", "nothing"}, weights);
    EXPECT_THAT(Names(), ElementsAre("a", "b"));
    const std::string said = Said();
    EXPECT_THAT(said, HasSubstr("without documents is left out of the blend"));
    for (const char* prefix : {"/none ", "/nothing "}) {
      const size_t at = said.find(prefix);
      ASSERT_NE(at, std::string::npos) << said;
      EXPECT_EQ(said.find(prefix, at + 1), std::string::npos) << "all three splits have it";
    }
  }
  Blend({"a", "b"}, true);
  EXPECT_EQ(Said(), "");
}

TEST_F(DataPathsTest, WhatIsNotAnEmptyPairStays) {
  Blend({"none"}, false);
  EXPECT_THAT(Names(), ElementsAre("none")) << "refused by whoever reads it";
  Blend({"none", "nothing"}, false);
  EXPECT_THAT(Names(), ElementsAre("none", "nothing"));
  Blend({"a", "missing"}, false);
  EXPECT_THAT(Names(), ElementsAre("a", "missing"));
  // Ids without an index are damage.
  data::WriteText(dir_.Path("none.bin"), "ab");
  Blend({"a", "none"}, false);
  EXPECT_THAT(Names(), ElementsAre("a", "none"));
  data::WriteText(dir_.Path("nothing.idx"), std::string(42, 'x'));
  Blend({"a", "nothing"}, false);
  const auto path = DataPathOf(dir_.path(), job_, spec::Split::kTrain);
  EXPECT_THAT(base::Message(path.status()), HasSubstr("nothing.idx: not a Megatron .idx file"));
}

}  // namespace
}  // namespace mt::train
