// The agent's question to mt-rank, with programs in its place that answer in every way.
#include "worker/node/agent/blas_check.h"

#include <chrono>

#include <gmock/gmock.h>

#include "tests/worker/node/ranks/node_rig.h"

namespace mt::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

class BlasCheckTest : public NodeTest {
 protected:
  // A program that does this when it is asked for the check.
  std::string Asked(const std::string& script, milliseconds deadline = seconds(30)) {
    const std::string path = Script("[ \"$1\" = --check-blas ] || exit 1\n" + script);
    return FindBlasProblem(path, deadline);
  }
};

TEST_F(BlasCheckTest, WhatItSaysIsTold) {
  EXPECT_EQ(Asked("echo OpenBLAS 0.3.21, kernels for Haswell"), "");
  EXPECT_EQ(Asked("echo it multiplies wrongly; echo more; exit 71"), "it multiplies wrongly");
  EXPECT_THAT(Asked("exit 64"), HasSubstr("mt-rank --check-blas, exit code 64"));
}

TEST_F(BlasCheckTest, AProgramThatDiesOrHangsIsAnAnswer) {
  EXPECT_THAT(Asked("kill -ILL $$"),
              AllOf(HasSubstr("ended by signal 4"), HasSubstr("OPENBLAS_CORETYPE=Haswell")));
  EXPECT_THAT(Asked("exec sleep 600", milliseconds(50)), HasSubstr("has not ended within 0.05 s"));
  EXPECT_THAT(FindBlasProblem("/nonexistent/mt-rank", seconds(1)),
              HasSubstr("mt-rank --check-blas"));
}

}  // namespace
}  // namespace mt::node
