// Memory as disjoint cells of equal history, cut where an access begins or ends; a write joins the
// cells that it covers.
#include "kernels/async/access_map.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace mt::kernels::async {
namespace {

// Adds a text once.
void AddText(const std::string& text, std::vector<std::string>* texts) {
  if (std::find(texts->begin(), texts->end(), text) == texts->end()) texts->push_back(text);
}

}  // namespace

void AccessMap::CutAt(uintptr_t at) {
  auto next = cells_.upper_bound(at);
  if (next == cells_.begin()) return;
  const auto cell = std::prev(next);
  if (cell->first == at || cell->second.end <= at) return;
  Cell rest = cell->second;
  cell->second.end = at;
  cells_.emplace_hint(next, at, std::move(rest));
}

AccessMap::Cells::iterator AccessMap::Cover(uintptr_t begin, uintptr_t end) {
  CutAt(begin);
  CutAt(end);
  uintptr_t at = begin;
  for (auto cell = cells_.lower_bound(begin); at < end; ++cell) {
    if (cell == cells_.end() || cell->first > at) {
      const uintptr_t to = cell == cells_.end() ? end : std::min(end, cell->first);
      cell = cells_.emplace_hint(cell, at, Cell{.end = to});
    }
    at = cell->second.end;
  }
  return cells_.find(begin);
}

std::vector<std::string> AccessMap::Enter(const MemoryUse& use, const Caller& caller) {
  const auto begin = reinterpret_cast<uintptr_t>(use.data);
  const uintptr_t end = begin + static_cast<uintptr_t>(use.bytes);
  const bool writes = use.access == Access::kWrite;
  const Past now{
      .text = fmt::format("'{}' of {} ({})", use.name, caller.name, writes ? "writes" : "reads"),
      .stream = caller.stream,
      .number = caller.number};
  std::vector<std::string> races;
  const auto check = [&](const Past& past) {
    if (!caller.clock->Covers(past.stream, past.number)) AddText(past.text, &races);
  };
  const auto first = Cover(begin, end);
  for (auto cell = first; cell != cells_.end() && cell->first < end; ++cell) {
    std::vector<Past>& reads = cell->second.reads;
    if (const std::optional<Past>& write = cell->second.write; write) check(*write);
    if (writes) {
      for (const Past& read : reads) check(read);
      continue;
    }
    const auto own = std::find_if(reads.begin(), reads.end(),
                                  [&](const Past& read) { return read.stream == caller.stream; });
    if (own != reads.end()) *own = now;
    if (own == reads.end()) reads.push_back(now);
  }
  if (writes) {
    cells_.erase(std::next(first), cells_.lower_bound(end));
    first->second = {.end = end, .write = now, .reads = {}};
  }
  return races;
}

std::vector<std::string> AccessMap::Forget(const void* data, int64_t bytes,
                                           const VectorClock& clock) {
  std::vector<std::string> open;
  if (bytes <= 0) return open;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  const auto check = [&](const Past& past) {
    if (!clock.Covers(past.stream, past.number)) AddText(past.text, &open);
  };
  const auto first = Cover(begin, end);
  for (auto cell = first; cell != cells_.end() && cell->first < end; ++cell) {
    if (const std::optional<Past>& write = cell->second.write; write) check(*write);
    for (const Past& read : cell->second.reads) check(read);
  }
  cells_.erase(first, cells_.lower_bound(end));
  return open;
}

}  // namespace mt::kernels::async
