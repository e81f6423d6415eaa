// Wording of a stall, from the times of its last progress and its last beat.
#include "common/report/stall_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/v1/types.pb.h"

namespace mt::report {
namespace {

namespace v1 = megatrain::v1;

// The clocks of two hosts may differ, so the difference is not allowed to be negative.
int64_t SecondsSince(int64_t since_us, int64_t now_us) {
  return std::max<int64_t>(0, (now_us - since_us) / 1'000'000);
}

}  // namespace

std::string StallText(const v1::RankStall& stall, int64_t now_us) {
  std::string text = fmt::format("no progress for {} s", SecondsSince(stall.since_us(), now_us));
  const bool silent = stall.last_beat_us() != 0;
  if (silent) {
    text += fmt::format(", no beat for {} s: its process is frozen or starved",
                        SecondsSince(stall.last_beat_us(), now_us));
  }
  if (!stall.mark().empty())
    text += fmt::format("; device {}at {}", silent ? "last " : "", stall.mark());
  return text;
}

std::string StalledRankText(const v1::RankStatus& rank, std::string_view place, int64_t now_us) {
  const std::string in_mesh = place.empty() ? "" : fmt::format(" ({})", place);
  return fmt::format("rank {}{} on {}: {}", rank.rank(), in_mesh, rank.node(),
                     StallText(rank.stall(), now_us));
}

}  // namespace mt::report
