// `mtctl logs --text`: what a job that reads a checkpoint has written, in pieces, whole.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

v1::LogChunk Piece(int64_t offset, const std::string& text, int64_t dropped = 0) {
  v1::LogChunk chunk;
  chunk.set_offset(offset);
  chunk.set_data(text);
  chunk.set_dropped(dropped);
  return chunk;
}

v1::LogChunk End(const std::string& error = "") {
  v1::LogChunk chunk;
  chunk.set_end(true);
  chunk.set_error(error);
  return chunk;
}

class LogsTextTest : public testing::Test {
 protected:
  LogsTextTest() {
    for (const char* name : {"MTCTL_COORDINATOR", "MTCTL_CONTEXT", "MTCTL_NAMESPACE"})
      ::unsetenv(name);
    ::unsetenv("MTCTL_OUTPUT");
  }
  ~LogsTextTest() override { ::unsetenv("MTCTL_OUTPUT"); }

  FakeCoordinator server_;
};

TEST_F(LogsTextTest, PrintsThePiecesAsTheyCome) {
  server_.state().outputs = {{Piece(0, "Once up"), Piece(7, "on\n"), End()}};
  const Ran ran = Mtctl(&server_, {"logs", "look", "--text", "-f"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "Once upon\n");
  ASSERT_EQ(server_.state().outputs_asked.size(), 1u);
  EXPECT_EQ(server_.state().outputs_asked[0].job().name(), "look");
  EXPECT_TRUE(server_.state().outputs_asked[0].follow());
}

// The flag is not that of the format of answers: a default from the environment refuses nothing.
TEST_F(LogsTextTest, AFormatOfTheEnvironmentIsNotRefused) {
  for (const char* format : {"json", "wide", "name"}) {
    ::setenv("MTCTL_OUTPUT", format, 1);
    server_.state().outputs.assign(1, {Piece(0, "{}\n"), End()});
    server_.state().outputs_asked.clear();
    const Ran ran = Mtctl(&server_, {"logs", "look", "--text"});
    EXPECT_EQ(ran.code, kExitOk) << ran.err;
    EXPECT_EQ(ran.out, "{}\n");
  }
  const Ran refused = Mtctl(&server_, {"logs", "look", "--text", "-o", "json"});
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("there is no -o json"));
}

TEST_F(LogsTextTest, WhatWasLeftOutIsAskedForAgain) {
  server_.state().outputs = {{Piece(0, "one "), Piece(9, "three", /*dropped=*/1)},
                             {Piece(4, "two "), Piece(8, "three\n"), End()}};
  const Ran ran = Mtctl(&server_, {"logs", "look", "--text"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "one two three\n");
  ASSERT_EQ(server_.state().outputs_asked.size(), 2u);
  EXPECT_EQ(server_.state().outputs_asked[1].offset(), 4);
}

TEST_F(LogsTextTest, AnErrorOfTheNodeIsTheEnd) {
  server_.state().outputs = {{Piece(0, "half"), End("node n1 is not connected")}};
  const Ran ran = Mtctl(&server_, {"logs", "look", "--text"});
  EXPECT_EQ(ran.code, kExitIo);
  EXPECT_EQ(ran.out, "half");
  EXPECT_EQ(ran.err, "mtctl: node n1 is not connected\n");
}

}  // namespace
}  // namespace mt::client
