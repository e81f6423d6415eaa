// Rounding rules of figures, and the widths of table columns, which ignore colours.
#include "client/output/format.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/v1/types.pb.h"

namespace mt::client {

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "-";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string FormatRate(double per_second) {
  if (!(per_second >= 0)) return "-";
  if (per_second < 1000) return fmt::format("{:.0f}", per_second);
  if (per_second < 1e6) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.2f}M", per_second / 1e6);
}

std::string FormatTokens(int64_t tokens) {
  const auto value = static_cast<double>(tokens);
  return value < 1e9 ? FormatRate(value) : fmt::format("{:.2f}G", value / 1e9);
}

std::string FormatPasses(double train, double valid) {
  const auto text = [](double passes) -> std::string {
    if (passes < 0.01) return "less than 0.01";
    return fmt::format("{:.{}f}", passes, passes < 1 ? 2 : 1);
  };
  if (train <= 0) return valid <= 0 ? "" : text(valid) + " passes over valid";
  const std::string out = text(train) + " passes over train";
  return valid <= 0 ? out : fmt::format("{}, {} over valid", out, text(valid));
}

std::string LossUnitsText(const megatrain::v1::EvalRecord& eval) {
  std::string text;
  if (eval.has_perplexity()) text += fmt::format(", perplexity {:.4g}", eval.perplexity());
  if (eval.has_bits_per_byte()) text += fmt::format(", {:.4f} bits per byte", eval.bits_per_byte());
  return text;
}

std::string FormatAge(int64_t unix_micros, int64_t now_micros) {
  if (unix_micros == 0) return "-";
  return FormatDuration(std::max(0.0, static_cast<double>(now_micros - unix_micros) / 1e6));
}

std::string ShortUuid(std::string_view uuid) {
  constexpr size_t kShown = 12;
  return uuid.empty() ? "-" : std::string(uuid.substr(0, kShown));
}

std::string StateText(const megatrain::v1::Job& job) {
  std::string text = megatrain::v1::JobState_Name(job.state());
  if (job.state() == megatrain::v1::STOPPING) {
    text += "(" + megatrain::v1::JobState_Name(job.stopping_to()) + ")";
  }
  return text;
}

std::string TimeLeftText(const megatrain::v1::Job& job) {
  const megatrain::v1::StepRecord& last = job.last_step();
  if (last.step_seconds() <= 0 || job.total_steps() <= last.step()) return "-";
  return FormatDuration(static_cast<double>(job.total_steps() - last.step()) * last.step_seconds());
}

bool HasEnded(const megatrain::v1::Job& job) {
  return job.state() == megatrain::v1::SUCCEEDED || job.state() == megatrain::v1::FAILED ||
         job.state() == megatrain::v1::CANCELLED;
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {  // an escape sequence for a colour, which ends at 'm'
      i = std::min(text.find('m', i), text.size());
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U)
      ++width;  // counts all but UTF-8 continuation bytes
  }
  return width;
}

std::string Table(const std::vector<std::vector<std::string>>& rows, std::vector<size_t>* kept) {
  std::vector<size_t> fresh;
  std::vector<size_t>& widths = kept == nullptr ? fresh : *kept;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];  // a row stays one line
      std::replace_if(
          line.end() - static_cast<std::ptrdiff_t>(row[i].size()), line.end(),
          [](char c) { return c == '\n' || c == '\t'; }, ' ');
      line.append(widths[i] + 2 - DisplayWidth(row[i]), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace mt::client
