// Formatting of faults, and the suggestion for a misspelt word.
#include "common/spec/fault.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace mt::spec {
namespace {

// Longer words are not typing errors, and the edit distance takes quadratic time.
constexpr size_t kMaxWord = 64;

// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string FormatFaults(const Faults& faults) {
  std::string out;
  for (const Fault& fault : faults) {
    if (!out.empty()) out += '\n';
    if (!fault.path.empty()) out += fault.path + ": ";
    out += fault.message;
  }
  return out;
}

Status ToStatus(const Faults& faults) {
  if (faults.empty()) return OkStatus();
  return base::InvalidArgument("{}", FormatFaults(faults));
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kMaxWord) return "";
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxWord) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace mt::spec
