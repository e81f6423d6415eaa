// The causes of a run's end: exceptions as causes, codes of statuses as causes.
#include "worker/failure/failure.h"

#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "kernels/core/device.h"

namespace mt::failure {
namespace {

template <class Exception>
Status StatusOf(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return StatusOfException();
  }
}

TEST(Failure, ExceptionsBecomeCausesWithTheirTexts) {
  const Status memory = StatusOf(kernels::DeviceMemoryError("cuda device 0: full"));
  EXPECT_EQ(CauseOf(memory), Cause::kOutOfMemory);
  EXPECT_EQ(base::Message(memory), "cuda device 0: full; does another process use the device too?");
  const Status device = StatusOf(kernels::DeviceError("cuda device 0: gone"));
  EXPECT_EQ(CauseOf(device), Cause::kHardware);
  EXPECT_EQ(base::Message(device), "device: cuda device 0: gone");
  EXPECT_EQ(CauseOf(StatusOf(std::bad_alloc())), Cause::kOutOfMemory);
  const Status other = StatusOf(std::runtime_error("odd"));
  EXPECT_EQ(CauseOf(other), Cause::kInternal);
  EXPECT_EQ(base::Message(other), "odd");
}

TEST(Failure, WhatIsNoExceptionGoesOn) { EXPECT_THROW(static_cast<void>(StatusOf(5)), int); }

TEST(Failure, CausesOfStatuses) {
  EXPECT_EQ(CauseOf(OkStatus()), Cause::kNone);
  EXPECT_EQ(CauseOf(base::InvalidArgument("x")), Cause::kUserError);
  EXPECT_EQ(CauseOf(base::NotFound("x")), Cause::kUserError);
  EXPECT_EQ(CauseOf(base::DataLoss("x")), Cause::kStorage);
  EXPECT_EQ(CauseOf(base::Unavailable("x")), Cause::kNetwork);
  EXPECT_EQ(CauseOf(base::Internal("x")), Cause::kInternal);
  const Status numeric = WithCause(base::Internal("x"), Cause::kNumeric);
  EXPECT_EQ(CauseOf(numeric), Cause::kNumeric);
  EXPECT_EQ(CauseOf(WithCause(numeric, Cause::kUserError)), Cause::kNumeric) << "the first stays";
  EXPECT_TRUE(WithCause(OkStatus(), Cause::kNumeric).ok());
}

}  // namespace
}  // namespace mt::failure
