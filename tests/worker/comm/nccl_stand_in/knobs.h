// How a test makes the stand-in misbehave: the environment variable MT_NCCL_STAND_IN holds
// KEY=VALUE, or KEY=VALUE@RANK for the communicators of one rank, separated by commas.
//
//   version=22500   ncclGetVersion gives this number
//   hang=N          the call with this number, from 0 on, waits until it is aborted
//   error=N         calls from this number on hang, and ncclCommGetAsyncError gives a remote error
//   abort_ms=T      ncclCommAbort frees the calls at once, and blocks for T before it returns
//   refuse=N        the call with this number returns an error instead of being enqueued
//   log=FILE        a line for each communicator that is made: its size and range of CTAs
#pragma once

#include <cstdint>
#include <string>

namespace mt::comm::stand_in {

struct Knobs {
  static constexpr int64_t kNever = -1;
  int version = 22809;
  int64_t hang = kNever;
  int64_t error = kNever;
  int64_t refuse = kNever;
  int64_t abort_ms = 0;
  std::string log;
};

// As the variable is now. `rank`: of the communicator; -1: those that hold for all.
Knobs ReadKnobs(int rank);

}  // namespace mt::comm::stand_in
