// A store is needed if the next one to its word comes behind a wait that it satisfied: without it
// nobody would get that far. The last one is, if anybody waited for it.
#include "kernels/async/word_map.h"

#include <algorithm>

#include <fmt/format.h>

namespace mt::kernels::async {

bool WordMap::DependsOnWaitFor(const Stored& store, const VectorClock& clock) {
  return std::any_of(store.waits.begin(), store.waits.end(),
                     [&](const auto& wait) { return clock.NumberOf(wait.first) > wait.second; });
}

void WordMap::Store(const WordUse& use, const WaitName& name, const VectorClock& clock,
                    WaitSites* sites) {
  std::vector<Stored>& stores = words_[use.at].stores;
  if (!stores.empty() && !DependsOnWaitFor(stores.back(), clock)) {
    stores.back().replaceable = true;
    sites->NoteRedundant(stores.back().name);
  }
  sites->NoteRedundant(name);  // until somebody waits for it
  stores.push_back({.value = use.value, .clock = clock, .name = name, .waits = {}});
}

const VectorClock* WordMap::Acquire(const WordUse& use, size_t stream, int64_t number,
                                    WaitSites* sites) {
  std::vector<Stored>& stores = words_[use.at].stores;
  const auto store = std::find_if(stores.begin(), stores.end(), [&](const Stored& stored) {
    return static_cast<int32_t>(stored.value - use.value) >= 0;
  });
  if (store == stores.end()) return nullptr;
  store->waits.emplace_back(stream, number);
  if (!store->replaceable) sites->NoteNeeded(store->name);
  return &store->clock;
}

const std::string& WordMap::Name(int rank, const uint32_t* at) {
  std::string& name = words_[at].name;
  if (name.empty()) name = fmt::format("word {} of rank {}", num_named_[rank]++, rank);
  return name;
}

std::string WordMap::NameOf(const uint32_t* at) const {
  const auto word = words_.find(at);
  return word == words_.end() ? "a word that is gone" : word->second.name;
}

void WordMap::Forget(const void* data, int64_t bytes) {
  const auto* const begin = static_cast<const uint32_t*>(data);
  words_.erase(words_.lower_bound(begin), words_.lower_bound(begin + (bytes + 3) / 4));
}

}  // namespace mt::kernels::async
