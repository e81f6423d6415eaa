// ANSI colours, and the states that have one.
#include "client/output/style.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "client/output/format.h"
#include "common/base/clock.h"

namespace mt::client {
namespace {

template <size_t N>
bool IsOneOf(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

}  // namespace

std::string Paint(const Style& style, Tone tone, std::string_view text) {
  if (!style.color || tone == Tone::kPlain) return std::string(text);
  const char* code = "2";
  if (tone == Tone::kGood) code = "32";
  if (tone == Tone::kBusy) code = "33";
  if (tone == Tone::kBad) code = "31";
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

Tone ToneOfState(std::string_view state) {
  static constexpr std::array<std::string_view, 6> kGood = {"RUNNING",  "SUCCEEDED", "READY",
                                                            "TRAINING", "DONE",      "done"};
  static constexpr std::array<std::string_view, 8> kBad = {
      "FAILED", "LOST", "DEAD", "FAULTED", "UNKNOWN", "FENCED", "STOPPING(FAILED)", "failed"};
  static constexpr std::array<std::string_view, 2> kDim = {"CANCELLED", "CAUSE_UNSPECIFIED"};
  if (IsOneOf(state, kGood)) return Tone::kGood;
  if (IsOneOf(state, kBad)) return Tone::kBad;
  if (IsOneOf(state, kDim)) return Tone::kDim;
  return Tone::kBusy;
}

std::string TimeCell(const Style& style, int64_t unix_micros) {
  if (unix_micros == 0) return "-";
  if (style.time == TimeFormat::kIso) return base::FormatUtc(unix_micros);
  if (style.time == TimeFormat::kRaw) return std::to_string(unix_micros);
  return FormatAge(unix_micros, style.now_us);
}

std::string TimeText(const Style& style, int64_t unix_micros) {
  if (unix_micros == 0 || style.time != TimeFormat::kRelative) return TimeCell(style, unix_micros);
  return fmt::format("{} ({} ago)", base::FormatUtc(unix_micros),
                     FormatAge(unix_micros, style.now_us));
}

std::string TimeHeader(const Style& style, std::string_view relative, std::string_view absolute) {
  return std::string(style.time == TimeFormat::kRelative ? relative : absolute);
}

}  // namespace mt::client
