// Exceptions as causes of a run's end.
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

}  // namespace
}  // namespace mt::failure
