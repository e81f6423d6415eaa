// Names of scores are those of TaskResult, in both forms.
#include "worker/decode/scores/score_report.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"

namespace mt::decode {
namespace {

using nlohmann::ordered_json;

// Seconds from which on what is left can be told.
constexpr double kToldAfter = 2;

bool IsCount(std::string_view name) { return name == "words" || name == "bytes"; }

ordered_json ScoreJson(std::string_view name, double value) {
  if (IsCount(name)) return static_cast<int64_t>(value);
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ordered_json ScoresJson(const std::vector<ScoredTask>& tasks) {
  ordered_json out = ordered_json::array();
  for (const auto& [task, result] : tasks) {
    ordered_json scores = ordered_json::object();
    for (const auto& [name, value] : result.scores) scores[name] = ScoreJson(name, value);
    out.push_back({{"name", task.name},
                   {"type", Name(task.type)},
                   {"rules", Name(task.rules)},
                   {"file", task.file},
                   {"window", task.window},
                   {"stride", task.stride},
                   {"documents", result.documents},
                   {"tokens", result.tokens},
                   {"cut_contexts", result.cut},
                   {"scores", scores}});
  }
  return out;
}

std::string ScoresText(const std::vector<ScoredTask>& tasks) {
  std::string out;
  for (const auto& [task, result] : tasks) {
    out +=
        fmt::format("{}: {}, {} rules, {} document{}, {} tokens, window {}",
                    base::CleanLine(task.name), Name(task.type), Name(task.rules), result.documents,
                    result.documents == 1 ? "" : "s", result.tokens, task.window);
    if (task.stride != task.window) out += fmt::format(", stride {}", task.stride);
    if (result.cut > 0) out += fmt::format("; {} contexts lost their beginning", result.cut);
    out += '\n';
    for (const auto& [name, value] : result.scores) {
      out += IsCount(name) ? fmt::format("  {:<22} {:.0f}\n", name, value)
                           : fmt::format("  {:<22} {:.6g}\n", name, value);
    }
  }
  return out;
}

std::string ProgressText(std::string_view task, int64_t done, int64_t all, double seconds,
                         size_t columns) {
  std::string rest = fmt::format(": {} of {} documents", done, all);
  if (done > 0 && seconds >= kToldAfter) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    rest += fmt::format(", {} left", Duration(left));
  }
  std::string name;
  for (const char byte : base::CleanLine(task)) {
    // Cut by characters, each a column.
    if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80U && name.size() + rest.size() >= columns)
      break;
    name += byte;
  }
  return name + rest;
}

}  // namespace mt::decode
