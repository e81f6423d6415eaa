// Structured log lines on top of spdlog: `level ts binary rank step msg key=value ...`. The message
// is constant text, what varies goes into fields. Thread-safe. Levels by etcd's definitions: Error
// = data lost or a request failed, Warn = needs a look, Info = a change of state, at most once
// every few seconds, Debug = all else. Nothing in kernels/ logs.
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
  std::string file;            // empty: stderr; else appended to, rotated by max_bytes x max_files
  int64_t max_bytes = 64LL << 20;
  int max_files = 8;
};

// One key=value. Values with spaces, quotes or '=' are quoted when printed.
struct Field {
  std::string_view key;
  std::string value;

  template <class T>
  Field(std::string_view k, const T& v) : key(k), value(fmt::format("{}", v)) {}
};

using Fields = std::initializer_list<Field>;

// Call once, from main, before threads start. Without it lines go to stderr under the binary name
// "megatrain".
void Init(const Config& config);
void SetLevel(Level level);
// "debug", "info", "warn", "error" -> level; anything else -> false.
bool ParseLevel(std::string_view text, Level* level);

// World rank shown in every following line (default "-"), and the step (training thread only;
// default "-").
void SetRank(int world_rank);
void SetStep(int64_t step);

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
void Flush();

}  // namespace mt::log
