// How text for people looks: colours, the form of times. What decides it (flags, terminal,
// NO_COLOR) is in session.h; here it is applied. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mt::client {

enum class TimeFormat { kRelative, kIso, kRaw };

struct Style {
  bool color = false;
  TimeFormat time = TimeFormat::kRelative;
  int64_t now_us = 0;  // Unix microseconds, for relative times
};

enum class Tone { kPlain, kGood, kBusy, kBad, kDim };

// The text in the tone's colour, or as it is.
std::string Paint(const Style& style, Tone tone, std::string_view text);
// Of a job, node or rank state, by its name: RUNNING is good, FAILED bad, STARTING busy.
Tone ToneOfState(std::string_view state);

// A cell of a table: "3m05s", "2026-01-02T03:04:05Z" or microseconds; "-" for 0.
std::string TimeCell(const Style& style, int64_t unix_micros);
// A sentence's: "2026-01-02T03:04:05Z (3m05s ago)", without the parenthesis when not relative.
std::string TimeText(const Style& style, int64_t unix_micros);
// Header of a column of TimeCells: `relative` or, for the other forms, `absolute`.
std::string TimeHeader(const Style& style, std::string_view relative, std::string_view absolute);

}  // namespace mt::client
