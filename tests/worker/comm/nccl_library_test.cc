// The search for NCCL and what is said when it is not there or not the right one. The library is
// loaded once per process, so each case is a process of its own (nccl_member_main.cc).
#include "worker/comm/nccl/nccl_library.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/comm/member_process.h"
#include "tests/worker/comm/nccl_harness.h"

namespace mt::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::chrono::steady_clock::time_point InAMinute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

std::string Load(std::vector<std::string> paths, std::vector<std::string> environment = {}) {
  paths.insert(paths.begin(), "load");
  MemberProcess member("mt_nccl_member", std::move(paths), std::move(environment));
  return member.ReadAll(InAMinute());
}

TEST(NcclLibrary, IsFoundAsTheDynamicLoaderFindsIt) {
  EXPECT_EQ(Load({}, {"LD_LIBRARY_PATH=" + StandInFolder()}), StandInPath() + " 2.28.9\nOK\n");
}

TEST(NcclLibrary, IsTakenFromTheFirstPathThatHasOne) {
  EXPECT_EQ(Load({"/nowhere/libnccl.so.2", StandInPath(), LackingPath()}),
            StandInPath() + " 2.28.9\nOK\n");
}

TEST(NcclLibrary, ThatIsNowhereIsSaidWithThePlaces) {
  EXPECT_THAT(Load({"/nowhere/libnccl.so.2", "/elsewhere/libnccl.so.2"}),
              AllOf(StartsWith("NOT_FOUND: "), HasSubstr("/nowhere/libnccl.so.2"),
                    HasSubstr("/elsewhere/libnccl.so.2"), HasSubstr("install libnccl2"),
                    HasSubstr("LD_LIBRARY_PATH")));
}

TEST(NcclLibrary, ThatIsTooOldIsRefused) {
  EXPECT_THAT(Load({StandInPath()}, {"MT_NCCL_STAND_IN=version=22709"}),
              AllOf(StartsWith("FAILED_PRECONDITION: "), HasSubstr(StandInPath()),
                    HasSubstr("2.27.9"), HasSubstr("2.28.0"), HasSubstr("install a newer one")));
  EXPECT_EQ(Load({StandInPath()}, {"MT_NCCL_STAND_IN=version=22800"}),
            StandInPath() + " 2.28.0\nOK\n");
}

TEST(NcclLibrary, ThatLacksAFunctionIsRefused) {
  EXPECT_THAT(Load({LackingPath(), StandInPath()}),
              AllOf(StartsWith("FAILED_PRECONDITION: "), HasSubstr(LackingPath()),
                    HasSubstr("ncclGetUniqueId"), HasSubstr("install a newer one")));
}

// Two processes with libraries of these versions make a group.
std::vector<std::string> Join(int version_of_first, int version_of_second) {
  const std::string folder = testing::TempDir() + "mt_nccl_join_" + base::RandomHex(8);
  std::vector<std::string> said;
  {
    const auto start = [&](const std::string& index, int version) {
      return std::make_unique<MemberProcess>(
          "mt_nccl_member", std::vector<std::string>{"join", folder, index, "2"},
          std::vector<std::string>{"LD_LIBRARY_PATH=" + StandInFolder(),
                                   fmt::format("MT_NCCL_STAND_IN=version={}", version)});
    };
    const auto first = start("0", version_of_first);
    const auto second = start("1", version_of_second);
    for (MemberProcess* member : {first.get(), second.get()}) {
      said.push_back(member->ReadAll(InAMinute()));
    }
  }
  std::filesystem::remove_all(folder);
  return said;
}

TEST(NcclLibrary, MembersOfOneVersionMeet) {
  EXPECT_EQ(Join(22809, 22809), (std::vector<std::string>{"OK\n", "OK\n"}));
}

TEST(NcclLibrary, MembersOfTwoVersionsAreRefusedByName) {
  for (const std::string& said : Join(22803, 22907)) {
    EXPECT_THAT(said, AllOf(StartsWith("FAILED_PRECONDITION: group members"),
                            HasSubstr("rank 10 has NCCL 2.28.3 and rank 11 NCCL 2.29.7"),
                            HasSubstr("install one version")));
  }
}

}  // namespace
}  // namespace mt::comm
