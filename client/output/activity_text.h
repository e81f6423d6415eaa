// What a job is busy with besides steps, as a line for people. Pure.
#pragma once

#include <string>

namespace megatrain::v1 {
class Activity;
class Job;
}  // namespace megatrain::v1

namespace mt::client {

// "saving step 1200: 3.1 of 15.8 GiB, 920 MiB/s", "computing the first step: microbatch 3 of 16,
// 12s"; "" where nothing is known. `more_seconds` have passed since the job was reported like this.
// Counts are rank 0's, which is said of a job of several ranks where they are bytes.
std::string ActivityText(const megatrain::v1::Job& job, double more_seconds);

// True where nothing has moved on between the two.
bool SameActivity(const megatrain::v1::Activity& a, const megatrain::v1::Activity& b);

}  // namespace mt::client
