// The places of a program at which a stream waits for an event or a word, or stores a word, which
// of these do anything, and the one that a test leaves out.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mt::kernels::async {

// A wait of a stream for an event or a word, or its store of a word.
struct WaitName {
  // "s1 'all_reduce dp/0' waits for s0 'copy'": both streams' last calls; "s1 'copy' waits for word
  // 0 of rank 1 to be 5"; "s1 'copy' stores 5".
  std::string site;
  int64_t nth = 0;  // among the rank's waits of this site
  int rank = 0;

  std::string Text() const {
    return "rank " + std::to_string(rank) + ": " + site + ", " + std::to_string(nth);
  }
  friend auto operator<=>(const WaitName&, const WaitName&) = default;
};

// Not thread-safe.
class WaitSites {
 public:
  explicit WaitSites(std::optional<WaitName> drop) : drop_(std::move(drop)) {}

  // Names and counts a rank's wait or store; nullopt if it is to be left out.
  std::optional<WaitName> Enter(int rank, const std::string& site) {
    const WaitName name{.site = site, .nth = num_of_site_[{rank, site}]++, .rank = rank};
    if (name == drop_) return std::nullopt;
    needed_[name] = true;
    return name;
  }
  // The order exists without it.
  void NoteRedundant(const WaitName& name) { needed_[name] = false; }
  void NoteNeeded(const WaitName& name) { needed_[name] = true; }

  // All waits and stores that were not left out, and of these the ones that were not found to be
  // redundant.
  int64_t num_waits() const { return static_cast<int64_t>(needed_.size()); }
  std::vector<WaitName> Needed() const {
    std::vector<WaitName> names;
    for (const auto& [name, needed] : needed_) {
      if (needed) names.push_back(name);
    }
    return names;
  }

 private:
  const std::optional<WaitName> drop_;
  std::map<std::pair<int, std::string>, int64_t> num_of_site_;
  std::map<WaitName, bool> needed_;
};

}  // namespace mt::kernels::async
