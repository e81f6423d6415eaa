// Rates are decimal, as disks and networks count.
#include "client/output/prepare_line.h"

#include <algorithm>

#include <fmt/format.h>

#include "client/output/format.h"
#include "worker/data/prepare/prepare.h"

namespace mt::client {
std::string PrepareLine(const data::PrepareProgress& progress, double seconds) {
  const double done = static_cast<double>(progress.bytes_done - progress.bytes_before);
  const double rate = std::max(done, 0.0) / std::max(seconds, 1e-3);
  const std::string rate_text = fmt::format("{:.1f} MB/s", rate / 1e6);
  if (progress.bytes_total <= 0) {
    return fmt::format("{}  {}  {} tokens", FormatBytes(progress.bytes_done), rate_text,
                       FormatTokens(progress.tokens));
  }
  const double share = std::clamp(
      static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes_total), 0.0,
      1.0);
  const double left = static_cast<double>(progress.bytes_total - progress.bytes_done);
  const std::string eta = rate > 0 ? FormatDuration(std::max(left, 0.0) / rate) : "-";
  if (progress.shuffling) {
    return fmt::format("shuffle {:3.0f}%  {}  ETA {}", 100 * share, rate_text, eta);
  }
  return fmt::format("{:3.0f}%  {}  {} tokens  ETA {}", 100 * share, rate_text,
                     FormatTokens(progress.tokens), eta);
}

}  // namespace mt::client
