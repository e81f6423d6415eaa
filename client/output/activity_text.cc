// One phrase per kind, then how far it is: bytes with their rate, anything else with the time so
// far.
#include "client/output/activity_text.h"

#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "client/output/format.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

// "3.1 of 15.8 GiB": both in the unit of the larger one.
std::string BytesDone(int64_t done, int64_t total) {
  if (total <= 0) return FormatBytes(done);
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  double scale = 1;
  while (static_cast<double>(total) / scale >= 1024 && unit + 1 < kUnits.size()) {
    scale *= 1024;
    ++unit;
  }
  return fmt::format("{0:.{3}f} of {1:.{3}f} {2}", static_cast<double>(done) / scale,
                     static_cast<double>(total) / scale, kUnits[unit], unit == 0 ? 0 : 1);
}

// "3 of 12 batches, "; "" where nothing is counted.
std::string CountDone(int64_t done, int64_t total, const char* units) {
  if (total > 0) return fmt::format("{} of {} {}, ", done, total, units);
  return done > 0 ? fmt::format("{} {}, ", done, units) : "";
}

}  // namespace

std::string ActivityText(const v1::Job& job, double more_seconds) {
  const v1::Activity& now = job.activity();
  const double lasted = now.seconds() + more_seconds;
  const std::string at = now.step() > 0 ? fmt::format(" step {}", now.step()) : "";
  const auto bytes = [&](const std::string& what) {
    std::string text = what + ": " + BytesDone(now.done(), now.total());
    if (now.done() > 0 && lasted > 0) {
      const auto rate = static_cast<int64_t>(static_cast<double>(now.done()) / lasted);
      text += fmt::format(", {}/s", FormatBytes(rate));
    } else {
      text += ", " + FormatDuration(lasted);
    }
    return job.slots() > 1 ? text + " (rank 0)" : text;
  };
  const auto count = [&](const std::string& what, const char* units) {
    return fmt::format("{}: {}{}", what, CountDone(now.done(), now.total(), units),
                       FormatDuration(lasted));
  };
  switch (now.kind()) {
    case v1::Activity::INDEXING:
      return count("opening the data", "documents");
    case v1::Activity::LOADING:
      return bytes("loading a checkpoint" + (at.empty() ? "" : " of" + at));
    case v1::Activity::TUNING:
      return count("timing matrix products", "products");
    case v1::Activity::STEP:
      return count("computing the first step", "microbatches");
    case v1::Activity::SAVING:
      return bytes("saving" + at);
    case v1::Activity::EVALUATING:
      return count("evaluating" + at, "microbatches");
    case v1::Activity::SCORING:
      return count("scoring", "documents");
    default:
      return "";
  }
}

bool SameActivity(const v1::Activity& a, const v1::Activity& b) {
  return a.kind() == b.kind() && a.step() == b.step() && a.done() == b.done() &&
         a.total() == b.total() && a.seconds() == b.seconds();
}

}  // namespace mt::client
