// `mtctl profile`: what it asks for, the file that it writes, and what it says where that fails.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "megatrain/v1/trace.pb.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

class ProfileTest : public testing::Test {
 protected:
  ProfileTest() {
    for (int number = 0; number < 2; ++number) {
      v1::RankTrace& rank = *trace_.add_ranks();
      rank.set_rank(number);
      rank.set_first_step(7);
      rank.set_last_step(9);
      v1::TraceStream& stream = *rank.add_streams();
      stream.set_name("compute");
      stream.set_kind(v1::TraceStream::COMPUTE);
      stream.add_labels("forward");
      stream.add_label(0);
      stream.add_gap_ns(0);
      stream.add_length_ns(5);
      stream.add_step(0);
    }
    Serve(trace_.SerializeAsString());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ProfileTest() override { std::filesystem::remove_all(folder_); }

  // The coordinator has these bytes, in two pieces, and an operation that is done.
  void Serve(const std::string& bytes) {
    FakeState& state = server_.state();
    state.trace.assign(2, {});
    state.trace[0].set_data(bytes.substr(0, bytes.size() / 2));
    state.trace[1].set_data(bytes.substr(bytes.size() / 2));
    state.trace[1].set_end(true);
    state.complete = [size = static_cast<int64_t>(bytes.size())](v1::Operation* operation) {
      operation->mutable_profile()->set_trace("trace-x.pb");
      operation->mutable_profile()->set_first_step(7);
      operation->mutable_profile()->set_last_step(9);
      operation->mutable_profile()->set_bytes(size);
    };
  }

  FakeCoordinator server_;
  v1::JobTrace trace_;
  const std::string folder_ = testing::TempDir() + "mt-profile-" + base::RandomHex(6);
  const std::string file_ = folder_ + "/trace.json";
};

TEST_F(ProfileTest, WritesAChromeTraceOfEveryRank) {
  const Ran ran =
      Mtctl(&server_, {"profile", "tiny", "--steps", "5", "-o", file_, "--reason", "r"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(server_.state().profiled.steps(), 5);
  EXPECT_EQ(server_.state().profiled.reason(), "r");
  EXPECT_EQ(server_.state().profiled.job().name(), "tiny");
  EXPECT_THAT(ran.out, HasSubstr("steps 7 to 9 of 2 ranks: " + file_));
  EXPECT_THAT(ran.out, HasSubstr("ui.perfetto.dev"));
  const auto read = nlohmann::json::parse(base::ReadFile(file_).value());
  EXPECT_EQ(read.at("otherData").at("ranks"), 2);
  EXPECT_EQ(Mtctl(&server_, {"profile", "tiny", "-o", file_}).code, 0) << "written anew";
  EXPECT_EQ(server_.state().profiled.steps(), 3) << "unless told otherwise";
}

TEST_F(ProfileTest, TheAnswersFormatStandsBeforeTheVerb) {
  const Ran ran = Mtctl(&server_, {"-o", "json", "profile", "tiny", "-o", file_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("profile").at("last_step"), 9);
  EXPECT_TRUE(base::Exists(file_));
}

TEST_F(ProfileTest, AnOperationsTraceIsFetchedLater) {
  ASSERT_EQ(Mtctl(&server_, {"profile", "tiny", "-o", file_}).code, 0);
  const std::string name = server_.state().operations.begin()->second.name();
  std::filesystem::remove(file_);
  const Ran ran = Mtctl(&server_, {"profile", name, "-o", file_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(base::Exists(file_));
  EXPECT_EQ(server_.state().operations.size(), 1U) << "nothing was asked for";
}

TEST_F(ProfileTest, WhatCannotBeIsSaidBeforeAnythingIsAskedFor) {
  const Ran folder = Mtctl(&server_, {"profile", "tiny", "-o", folder_});
  EXPECT_EQ(folder.code, kExitIo);
  EXPECT_THAT(folder.err, HasSubstr("is a folder"));
  const Ran nowhere = Mtctl(&server_, {"profile", "tiny", "-o", folder_ + "/none/trace.json"});
  EXPECT_EQ(nowhere.code, kExitIo);
  EXPECT_THAT(nowhere.err, HasSubstr("No such file"));
  const Ran device = Mtctl(&server_, {"profile", "tiny", "-o", "/dev/null"});
  EXPECT_EQ(device.code, kExitIo);
  EXPECT_THAT(device.err, HasSubstr("is no regular file"));
  EXPECT_THAT(Mtctl(&server_, {"profile", "tiny", "-o", ""}).err, HasSubstr("-o"));
  for (const char* steps : {"0", "21", "x"})
    EXPECT_EQ(Mtctl(&server_, {"profile", "tiny", "--steps", steps, "-o", file_}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server_, {"profile", "tiny"}).code, kExitUsage) << "no file";
  const Ran format = Mtctl(&server_, {"profile", "tiny", "-o", "json"});
  EXPECT_EQ(format.code, kExitUsage);
  EXPECT_THAT(format.err, HasSubstr("mtctl -o json profile"));
  EXPECT_TRUE(server_.state().operations.empty());
}

TEST_F(ProfileTest, ARefusalAndAFailureAreTold) {
  server_.state().refuse = {grpc::StatusCode::FAILED_PRECONDITION,
                            "job 'tiny' is PAUSED_HELD: profile is not possible there"};
  EXPECT_THAT(Mtctl(&server_, {"profile", "tiny", "-o", file_}).err, HasSubstr("PAUSED_HELD"));
  server_.state().refuse = grpc::Status::OK;
  server_.state().complete = [](v1::Operation* operation) {
    operation->mutable_error()->set_code(static_cast<int>(grpc::StatusCode::FAILED_PRECONDITION));
    operation->mutable_error()->set_message("nothing was traced: the run ended");
  };
  const Ran failed = Mtctl(&server_, {"profile", "tiny", "-o", file_});
  EXPECT_NE(failed.code, 0);
  EXPECT_THAT(failed.err, HasSubstr("profile of tiny failed: nothing was traced"));
  EXPECT_FALSE(base::Exists(file_));
}

TEST_F(ProfileTest, ATraceThatIsNotWholeIsNotWritten) {
  server_.state().trace[1].set_error("open /logs/trace-x.pb: No such file or directory");
  const Ran gone = Mtctl(&server_, {"profile", "tiny", "-o", file_});
  EXPECT_NE(gone.code, 0);
  EXPECT_THAT(gone.err, HasSubstr("open /logs/trace-x.pb"));
  EXPECT_THAT(gone.err, HasSubstr("to try again: mtctl profile operations/"));
  Serve(trace_.SerializeAsString());
  server_.state().trace[1].set_dropped(3);
  EXPECT_THAT(Mtctl(&server_, {"profile", "tiny", "-o", file_}).err, HasSubstr("too slowly"));
  Serve(trace_.SerializeAsString());
  server_.state().trace.pop_back();
  EXPECT_THAT(Mtctl(&server_, {"profile", "tiny", "-o", file_}).err,
              HasSubstr("a later profile of the job has taken its place"));
  EXPECT_FALSE(base::Exists(file_));
}

}  // namespace
}  // namespace mt::client
