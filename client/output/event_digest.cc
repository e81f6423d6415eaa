// Walks from the newest event back, so that an event's line stands where it happened last.
#include "client/output/event_digest.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

bool TellsOfAnError(const v1::Event& event) {
  if (event.cause() != v1::CAUSE_UNSPECIFIED || event.to() == v1::FAILED) return true;
  const std::string_view type = event.type();
  return type.ends_with("Failed") || type.ends_with("Refused") || type.ends_with("Stalled");
}

struct DigestLine {
  const v1::Event* newest;
  std::string text;
  int count = 0;
};

}  // namespace

std::string EventDigest(const v1::EventsChunk& events, const DigestArgs& which,
                        const TableArgs& args) {
  std::vector<DigestLine> lines;  // the newest first
  std::map<std::string, size_t> known;
  for (int i = events.events_size() - 1; i >= 0; --i) {
    const v1::Event& event = events.events(i);
    if (which.errors_only && !TellsOfAnError(event)) continue;
    // Type and message, as in a table of events.
    const std::vector<std::string> row = EventRow(event, {});
    const std::string text =
        base::CleanLine(event.type()) + (row[4].empty() ? "" : "  " + base::CleanLine(row[4]));
    const auto [at, fresh] = known.emplace(text, lines.size());
    if (fresh) lines.push_back({.newest = &event, .text = text});
    ++lines[at->second].count;
  }
  lines.resize(std::min(lines.size(), which.lines));
  std::ranges::reverse(lines);
  std::string out;
  for (const DigestLine& line : lines) {
    std::string when = TimeCell(args.style, line.newest->time_us());
    if (args.style.time == TimeFormat::kRelative) when += " ago";
    const std::string times = line.count > 1 ? fmt::format("  ({} times)", line.count) : "";
    out += fmt::format("  {:>11}  {}{}\n", when, line.text, times);
  }
  return out;
}

}  // namespace mt::client
