// The form of log lines, and levels.
#include "common/base/log.h"

#include <filesystem>
#include <sstream>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"

namespace mt::log {
namespace {

TEST(Log, LinesHaveTheAgreedForm) {
  const std::string path = testing::TempDir() + "/log_test_" + std::to_string(::getpid()) + ".log";
  std::filesystem::remove(path);
  Init({.binary = "mt-test", .level = Level::kInfo, .file = path});
  Info("started", {{"port", 80}, {"text", "a b\"c\n"}, {"empty", ""}});
  Debug("hidden");
  SetRank(3);
  SetStep(17);
  Error("failed");
  Line("as {} it is \"=");
  Flush();
  std::istringstream lines(*base::ReadFile(path));
  std::string first;
  std::string second;
  std::string third;
  std::getline(lines, first);
  std::getline(lines, second);
  std::getline(lines, third);
  EXPECT_EQ(third, "as {} it is \"=");
  EXPECT_FALSE(std::getline(lines, third));
  // level ts binary rank step msg key=value
  EXPECT_EQ(first.substr(0, 5), "info ");
  EXPECT_NE(first.find("Z mt-test - - started port=80 text=\"a b\\\"c\\n\" empty=\"\""),
            std::string::npos)
      << first;
  EXPECT_NE(second.find("Z mt-test 3 17 failed"), std::string::npos) << second;
  std::filesystem::remove(path);
}

TEST(Log, Levels) {
  Level level = Level::kError;
  EXPECT_TRUE(ParseLevel("debug", &level));
  EXPECT_EQ(level, Level::kDebug);
  EXPECT_FALSE(ParseLevel("loud", &level));
  EXPECT_EQ(level, Level::kDebug);
}

}  // namespace
}  // namespace mt::log
