// A rank without progress as text for people: the same in the coordinator's events and in `mtctl
// describe`. Times are Unix microseconds. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain::v1 {
class RankStall;
class RankStatus;
}  // namespace megatrain::v1

namespace mt::report {

// "no progress for 75 s; device at step 41, microbatch 2, chunk 0: forward; 5 marks enqueued behind
// it"; where the rank's beats have stopped too, "no progress for 75 s, no beat for 74 s: its
// process is frozen or starved; device last at ...".
std::string StallText(const megatrain::v1::RankStall& stall, int64_t now_us);

// "rank 3 (tp 1, pp 0) on node-a: ..." for a rank that has a stall. `place` holds its mesh
// coordinates and may be empty.
std::string StalledRankText(const megatrain::v1::RankStatus& rank, std::string_view place,
                            int64_t now_us);

}  // namespace mt::report
