// The look of text for people: colours and the form of times. session.h decides it (flags,
// terminal, NO_COLOR); here it is applied. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mt::client {

enum class TimeFormat { kRelative, kIso, kRaw };

// Settings that every printing function takes.
struct Style {
  bool color = false;
  TimeFormat time = TimeFormat::kRelative;
  int64_t now_us = 0;  // current time in Unix microseconds, for relative times
};

// Meaning of a piece of text, from which its colour follows.
enum class Tone { kPlain, kGood, kBusy, kBad, kDim };

// The text in the colour of the tone; unchanged where colours are off.
std::string Paint(const Style& style, Tone tone, std::string_view text);
// The tone of a job's, node's or rank's state by its name: RUNNING is good, FAILED bad, STARTING
// busy.
Tone ToneOfState(std::string_view state);

// A time in a table cell: "3m05s", "2026-01-02T03:04:05Z" or microseconds; "-" for 0.
std::string TimeCell(const Style& style, int64_t unix_micros);
// A time in a sentence: "2026-01-02T03:04:05Z (3m05s ago)", without the parentheses unless times
// are relative.
std::string TimeText(const Style& style, int64_t unix_micros);
// The header of a column of TimeCells: `relative` for relative times, else `absolute`.
std::string TimeHeader(const Style& style, std::string_view relative, std::string_view absolute);

}  // namespace mt::client
