// The text about a rank without progress, with the position of its device.
#include "common/report/stall_text.h"

#include <gtest/gtest.h>

#include "megatrain/v1/types.pb.h"

namespace mt::report {
namespace {

constexpr int64_t kNow = 1'700'000'075'900'000;
constexpr char kMark[] = "step 41, microbatch 2, chunk 0: forward; 5 marks enqueued behind it";

megatrain::v1::RankStatus Stalled() {
  megatrain::v1::RankStatus rank;
  rank.set_rank(3);
  rank.set_node("node-a");
  rank.mutable_stall()->set_since_us(1'700'000'000'000'000);
  rank.mutable_stall()->set_mark(kMark);
  return rank;
}

TEST(StallText, NamesRankPlaceAndMark) {
  EXPECT_EQ(StalledRankText(Stalled(), "tp 1, pp 0", kNow),
            "rank 3 (tp 1, pp 0) on node-a: no progress for 75 s; device at step 41, microbatch 2, "
            "chunk 0: forward; 5 marks enqueued behind it");
  EXPECT_EQ(StalledRankText(Stalled(), "", kNow).find("rank 3 on node-a: no progress"), 0U);
}

TEST(StallText, ARankWithoutABeatIsTheOneToLookAt) {
  megatrain::v1::RankStatus rank = Stalled();
  rank.mutable_stall()->set_last_beat_us(1'700'000'001'000'000);
  EXPECT_EQ(StallText(rank.stall(), kNow),
            "no progress for 75 s, no beat for 74 s: its process is frozen or starved; device last "
            "at step 41, microbatch 2, chunk 0: forward; 5 marks enqueued behind it");
}

TEST(StallText, WithoutAMarkAndWithClocksThatDiffer) {
  megatrain::v1::RankStatus rank = Stalled();
  rank.mutable_stall()->clear_mark();
  EXPECT_EQ(StallText(rank.stall(), kNow), "no progress for 75 s");
  EXPECT_EQ(StallText(rank.stall(), 0), "no progress for 0 s");
}

}  // namespace
}  // namespace mt::report
