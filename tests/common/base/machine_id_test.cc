// Which files are a machine's id, and that a container has none.
#include "common/base/machine_id.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "common/base/ids.h"

namespace mt::base {
namespace {

TEST(MachineIdTest, OnlyAnIdIsOne) {
  const std::string path = testing::TempDir() + "mt-machine-id-" + RandomHex(6);
  const auto read = [&path](const std::string& content) {
    std::ofstream(path) << content;
    return ReadMachineId(path);
  };
  EXPECT_EQ(read("3d1219c7c4c5404aaa1f6d2a48adfda4\n"), "3d1219c7c4c5404aaa1f6d2a48adfda4");
  EXPECT_EQ(read("3d1219c7c4c5404aaa1f6d2a48adfda4"), "3d1219c7c4c5404aaa1f6d2a48adfda4");
  // Before the first boot, and in images.
  for (const char* none :
       {"", "\n", "uninitialized\n", "00000000000000000000000000000000\n",
        "3d1219c7c4c5404aaa1f6d2a48adfda\n", "3d1219c7c4c5404aaa1f6d2a48adfda4a\n",
        "3D1219C7C4C5404AAA1F6D2A48ADFDA4\n"}) {
    EXPECT_EQ(read(none), "") << none;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(ReadMachineId(path), "");
}

TEST(MachineIdTest, APodHasNone) {
  ASSERT_EQ(::setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1), 0);
  EXPECT_EQ(MachineId(), "");
  ::unsetenv("KUBERNETES_SERVICE_HOST");
}

}  // namespace
}  // namespace mt::base
