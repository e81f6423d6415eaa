// Words of device memory that streams store and wait for (Stream::WriteValue and WaitValue): what
// was stored in each, what came before each store, and which stores nothing could do without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/async/vector_clock.h"
#include "kernels/async/wait_sites.h"

namespace mt::kernels::async {

// What a call does with a word.
struct WordUse {
  uint32_t* at = nullptr;
  uint32_t value = 0;
  bool stores = false;  // false: waits until the word is `value` or up to 2^31 beyond

  bool IsReached() const { return static_cast<int32_t>(*at - value) >= 0; }
};

// Not thread-safe.
class WordMap {
 public:
  // A store that has run: it releases all that `clock` covers.
  void Store(const WordUse& use, const WaitName& name, const VectorClock& clock, WaitSites* sites);
  // A wait that is over: by the first store that satisfies it, however far the word is by now, so
  // that clocks do not depend on the order that is drawn. Returns what that store releases;
  // nullptr: the word was so from the beginning. `number`: of the last call of the stream with
  // this index before the wait.
  const VectorClock* Acquire(const WordUse& use, size_t stream, int64_t number, WaitSites* sites);
  // "word 0 of rank 1": numbered as the rank first waits for them.
  const std::string& Name(int rank, const uint32_t* at);
  std::string NameOf(const uint32_t* at) const;  // that it was given
  // Ends the life of memory with all words in it.
  void Forget(const void* data, int64_t bytes);

 private:
  struct Stored {
    uint32_t value = 0;
    VectorClock clock;
    WaitName name;
    // Waits that it was the first to satisfy: streams, and their last call before the wait.
    std::vector<std::pair<size_t, int64_t>> waits;
    // The next store does the same for them, somewhat later: it does not depend on any of them.
    bool replaceable = false;
  };
  struct Word {
    std::string name;
    std::vector<Stored> stores;
  };
  static bool DependsOnWaitFor(const Stored& store, const VectorClock& clock);

  std::map<const uint32_t*, Word> words_;
  std::map<int, int> num_named_;  // by rank
};

}  // namespace mt::kernels::async
