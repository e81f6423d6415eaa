// One logger per process. A line is formatted here, not by spdlog's patterns, because rank, step
// and fields are part of it; spdlog filters by level, writes, rotates and flushes.
#include "common/base/log.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>

#include <fmt/chrono.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace mt::log {
namespace {

struct State {
  std::shared_ptr<spdlog::logger> logger;
  std::string binary = "megatrain";
  std::atomic<int> rank{-1};
  std::atomic<int64_t> step{-1};

  State() {
    logger =
        std::make_shared<spdlog::logger>("mt", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%v");
  }
};

State& Global() {
  static State* state = new State;  // never destroyed: threads may log during exit
  return *state;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

const char* Name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarn:
      return "warn";
    case Level::kError:
      return "error";
  }
  return "?";
}

// UTC with microseconds, as RFC 3339.
std::string Timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(micros / 1000000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(seconds), micros % 1000000);
}

void AppendValue(std::string* line, std::string_view value) {
  if (!value.empty() && value.find_first_of(" \"=\n\t") == std::string_view::npos) {
    line->append(value);
    return;
  }
  line->push_back('"');
  for (const char c : value) {
    if (c == '\n') {
      line->append("\\n");
    } else {
      if (c == '"' || c == '\\') line->push_back('\\');
      line->push_back(c);
    }
  }
  line->push_back('"');
}

}  // namespace

void Init(const Config& config) {
  State& state = Global();
  state.binary = config.binary;
  if (!config.file.empty()) {
    state.logger = std::make_shared<spdlog::logger>(
        "mt", std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
                  config.file, static_cast<size_t>(config.max_bytes),
                  static_cast<size_t>(config.max_files)));
    state.logger->set_pattern("%v");
  }
  state.logger->flush_on(spdlog::level::info);
  SetLevel(config.level);
}

void SetLevel(Level level) { Global().logger->set_level(ToSpdlog(level)); }

bool ParseLevel(std::string_view text, Level* level) {
  for (const Level l : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError}) {
    if (text == Name(l)) {
      *level = l;
      return true;
    }
  }
  return false;
}

void SetRank(int world_rank) { Global().rank.store(world_rank, std::memory_order_relaxed); }
void SetStep(int64_t step) { Global().step.store(step, std::memory_order_relaxed); }

void Write(Level level, std::string_view message, Fields fields) {
  State& state = Global();
  if (!state.logger->should_log(ToSpdlog(level))) return;
  const int rank = state.rank.load(std::memory_order_relaxed);
  const int64_t step = state.step.load(std::memory_order_relaxed);
  std::string line =
      fmt::format("{} {} {} {} {} ", Name(level), Timestamp(), state.binary,
                  rank < 0 ? "-" : std::to_string(rank), step < 0 ? "-" : std::to_string(step));
  line.append(message);
  for (const Field& field : fields) {
    line.push_back(' ');
    line.append(field.key);
    line.push_back('=');
    AppendValue(&line, field.value);
  }
  state.logger->log(ToSpdlog(level), line);
}

void Line(std::string_view line) {
  // The text is no format: braces in it stay.
  Global().logger->log(spdlog::level::info, "{}", line);
}

void Flush() { Global().logger->flush(); }

}  // namespace mt::log
