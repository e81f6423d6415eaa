// What a reader's job writes is kept up to a number of bytes, and never half a character.
#include "worker/decode/job/output_file.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "common/base/ids.h"

namespace mt::decode {
namespace {

class OutputFileTest : public testing::Test {
 protected:
  ~OutputFileTest() override { std::filesystem::remove(path_); }
  std::string Text() const { return base::ReadFile(path_).value_or("none"); }

  const std::string path_ = testing::TempDir() + "/mt_output_" + base::RandomHex(6);
};

TEST_F(OutputFileTest, WhatComesIsThereAtOnce) {
  auto file = OutputFile::Create(path_, 100);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Text(), "");
  EXPECT_TRUE((*file)->Append("Once ").ok());
  EXPECT_EQ(Text(), "Once ");
  EXPECT_TRUE((*file)->Append("upon\n").ok());
  EXPECT_EQ(Text(), "Once upon\n");
  EXPECT_EQ((*file)->bytes(), 10);
  EXPECT_FALSE((*file)->full());
  // Another placement of the job begins anew, whatever the process of this one still writes.
  auto again = OutputFile::Create(path_, 100);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Text(), "");
  EXPECT_TRUE((*file)->Append("a time").ok());
  EXPECT_EQ(Text(), "");
  EXPECT_TRUE((*again)->Append("There").ok());
  EXPECT_EQ(Text(), "There");
  EXPECT_FALSE(base::Exists(path_ + ".new"));
}

TEST_F(OutputFileTest, ADeviceStaysWhatItIs) {
  auto full = OutputFile::Create("/dev/full", 100);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_TRUE(absl::IsResourceExhausted((*full)->Append("a"))) << "no space is left on it";
}

TEST_F(OutputFileTest, WhatIsTooMuchIsLeftOutFromACharacterOn) {
  auto file = OutputFile::Create(path_, 8);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Append("12345678").ok());
  EXPECT_FALSE((*file)->full()) << "all of it is there";
  EXPECT_TRUE((*file)->Append("9").ok());
  EXPECT_TRUE((*file)->full());
  EXPECT_EQ(Text(), "12345678");
  file = OutputFile::Create(path_, 8);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Append("123456\xE4\xB8\xAD").ok());  // three bytes, of which two would fit
  EXPECT_EQ(Text(), "123456");
  EXPECT_TRUE((*file)->Append("7").ok());
  EXPECT_EQ(Text(), "123456") << "nothing follows a gap";
  EXPECT_EQ((*file)->bytes(), 6);
}

TEST_F(OutputFileTest, AFolderThatIsNotThereIsAnError) {
  const auto file = OutputFile::Create(path_ + "/none/output", 8);
  EXPECT_TRUE(absl::IsNotFound(file.status())) << file.status();
}

}  // namespace
}  // namespace mt::decode
