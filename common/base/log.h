// Structured log lines on top of spdlog: `level ts binary rank step msg key=value ...`. The message
// is constant text; what varies goes into fields. Thread-safe. Levels follow etcd's definitions:
// Error means that data was lost or a request failed, Warn that a person should look, Info is a
// change of state, at most once every few seconds, Debug is everything else. Nothing in kernels/
// logs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

namespace mt::log {

enum class Level { kDebug, kInfo, kWarn, kError };

struct Config {
  std::string binary;          // "mt-rank"
  Level level = Level::kInfo;  // lower levels are dropped
  std::string file;            // empty: stderr; else appended to, rotated
  // Size at which the file is rotated, and how many rotated files are kept.
  int64_t max_bytes = 64LL << 20;
  int max_files = 8;
};

// One key=value pair. Values that are empty or contain spaces, quotes, '=' or newlines are quoted
// when printed.
struct Field {
  std::string_view key;
  std::string value;

  template <class T>
  Field(std::string_view k, const T& v) : key(k), value(fmt::format("{}", v)) {}
};

using Fields = std::initializer_list<Field>;

// Call it once, from main, before threads start. Without it lines go to stderr under the binary
// name "megatrain". Lines of level Info and above are flushed as they are written.
void Init(const Config& config);
// Drops lines below `level` from now on. Thread-safe.
void SetLevel(Level level);
// Parses "debug", "info", "warn" or "error"; returns false and leaves *level for anything else.
bool ParseLevel(std::string_view text, Level* level);

// World rank and step that every following line shows ("-" until set, and for negative values).
// Only the training thread sets the step.
void SetRank(int world_rank);
void SetStep(int64_t step);

// Writes one line with the current time (UTC, microseconds). `message` must not vary with data.
void Write(Level level, std::string_view message, Fields fields);
inline void Debug(std::string_view message, Fields fields = {}) {
  Write(Level::kDebug, message, fields);
}
inline void Info(std::string_view message, Fields fields = {}) {
  Write(Level::kInfo, message, fields);
}
inline void Warn(std::string_view message, Fields fields = {}) {
  Write(Level::kWarn, message, fields);
}
inline void Error(std::string_view message, Fields fields = {}) {
  Write(Level::kError, message, fields);
}
// Writes one line as it is, without time or fields: of a format that is another program's. Dropped
// where lines of level Info are.
void Line(std::string_view line);
// Blocks until everything written so far has reached the file or stderr.
void Flush();

}  // namespace mt::log
