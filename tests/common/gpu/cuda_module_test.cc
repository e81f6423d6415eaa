// Where the CUDA module is searched, and which GPUs and libraries it accepts.
#include "common/gpu/cuda_module.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mt::gpu {
namespace {

using ::testing::HasSubstr;

TEST(CudaModule, LiesBesideTheProgramsOrInLib) {
  std::string pattern = testing::TempDir() + "/cuda_module_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path root(pattern);
  const std::filesystem::path programs = root / "bin";
  const std::filesystem::path lib = root / "lib";
  std::filesystem::create_directories(programs);
  std::filesystem::create_directories(lib);
  const auto none = FindCudaModule(programs.string());
  ASSERT_FALSE(none.ok());
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  for (const auto& place : {programs, lib}) {
    EXPECT_THAT(base::Message(none.status()), HasSubstr((place / kCudaModuleName).string()));
  }
  EXPECT_THAT(base::Message(none.status()), HasSubstr("MT_CUDA=ON"));
  std::ofstream(lib / kCudaModuleName) << "x";
  EXPECT_EQ(FindCudaModule(programs.string()).value(), (lib / kCudaModuleName).string());
  std::ofstream(programs / kCudaModuleName) << "x";
  EXPECT_EQ(FindCudaModule(programs.string()).value(), (programs / kCudaModuleName).string());
  std::filesystem::remove_all(root);
}

TEST(CudaModule, RunsOnAmpereAdaAndHopper) {
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}}) {
    EXPECT_EQ(CapabilityFault("GPU 0", major, minor), "") << major << "." << minor;
  }
  for (const auto& [major, minor] : {std::pair{7, 5}, {9, 1}, {10, 0}, {12, 0}, {0, 0}}) {
    const std::string fault = CapabilityFault("GPU 3 (GPU-a)", major, minor);
    EXPECT_THAT(
        fault, HasSubstr(fmt::format("GPU 3 (GPU-a) has compute capability {}.{};", major, minor)));
    EXPECT_THAT(fault, HasSubstr("the CUDA backend is built for 8.x and 9.0"));
  }
}

TEST(CudaModule, NamesALibraryThatIsTooOld) {
  EXPECT_EQ(LibraryFault(91400, 130000), "");
  EXPECT_EQ(LibraryFault(91900, 130200), "");
  EXPECT_EQ(LibraryFault(91399, 130000),
            "cudnnGetVersion: cuDNN 9.13.99 is too old; install 9.14.0 or newer");
  EXPECT_EQ(LibraryFault(91400, 120805),
            "cublasLtGetVersion: cuBLASLt 12.8.5 is too old; install 13.0.0 or newer (CUDA 13)");
}

}  // namespace
}  // namespace mt::gpu
