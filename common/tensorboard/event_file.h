// The bytes of TensorBoard event files (README.md): records, and how files are named. A file is a
// head and any number of records behind it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mt::tensorboard {

// A point of a curve. Stored as a float: what a double has beyond it is lost.
struct Scalar {
  std::string tag;
  double value = 0;

  friend bool operator==(const Scalar&, const Scalar&) = default;
};

// When, and at which step, something was.
struct EventTime {
  int64_t step = 0;
  int64_t time_us = 0;  // Unix
};

// The first bytes of every file: its version, and the session that begins with `start.step`, the
// first step to come. Readers drop what earlier files hold from that step on.
std::string FileHead(const EventTime& start);
// The same session alone: within a file, points from start.step on come again.
std::string SessionStart(const EventTime& start);
// All scalars of a step in one record; "" where there are none.
std::string ScalarRecord(const EventTime& at, const std::vector<Scalar>& scalars);

// "events.out.tfevents.1764480000.LABEL"; readers take a folder's files in the order of their
// names. `start_s`: Unix seconds, at least 0. `label` is a part of a file name.
std::string EventFileName(int64_t start_s, std::string_view label);
// The start in a file's name; nullopt for the name of another file.
std::optional<int64_t> StartOfEventFile(std::string_view name);

}  // namespace mt::tensorboard
