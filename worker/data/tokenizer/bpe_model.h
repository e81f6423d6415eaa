// Byte-pair encoding: tokens are byte strings, or texts (text_bpe), and merges join two of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::data {

// A longer piece of text is refused: no text has words of this size.
inline constexpr size_t kMaxPieceBytes = size_t{16} << 20;

struct BpeMerge {
  int32_t left, right, result;
};

// What a model is made of; filled by the readers of files and by the trainer.
struct BpeTables {
  std::vector<std::string> tokens{};  // bytes by id; "" where an id has no token
  std::vector<BpeMerge> merges{};     // the first is applied first
  bool ignore_merges = false;         // a piece that is a token becomes it, whatever the merges
};

// Held while a piece is merged. Long pieces are rare and go one at a time, so that their memory has
// a bound; others do not wait. Not to be held twice by a thread.
class LongPieceTurn {
 public:
  explicit LongPieceTurn(size_t bytes);

 private:
  std::optional<base::MutexLock> alone_;
};

// Memory of one thread's encoding: the pieces that it met last, and room to merge in. Belongs to
// one thread at a time, and to one model.
class BpeScratch {
 public:
  BpeScratch();

  // Appends the ids of a piece: those of the last time, or what merge() appends.
  template <class Merge>
  void Encode(std::string_view piece, std::vector<int32_t>* ids, Merge&& merge) {
    if (piece.size() >= kKeyBytes) return merge();
    const Key key = KeyOf(piece);
    Slot& slot = slots_[SlotOf(key)];
    if (slot.count > 0 && slot.key == key) {
      if (slot.count == 1) return ids->push_back(slot.ids[0]);
      ids->insert(ids->end(), slot.ids.begin(), slot.ids.begin() + slot.count);
      return;
    }
    const size_t before = ids->size();
    merge();
    const size_t count = ids->size() - before;
    if (count > kMaxIds) return;
    slot.key = key;
    slot.count = static_cast<int32_t>(count);
    std::copy(ids->end() - slot.count, ids->end(), slot.ids.begin());
  }

 private:
  friend class BpeModel;
  static constexpr size_t kKeyBytes = 32;  // the last one holds the length
  static constexpr int kMaxIds = 7;
  using Key = std::array<uint64_t, kKeyBytes / 8>;
  struct alignas(64) Slot {
    Key key;
    std::array<int32_t, kMaxIds> ids;
    int32_t count;  // 0: free
  };
  static Key KeyOf(std::string_view piece) {
    Key key{};
    std::memcpy(key.data(), piece.data(), piece.size());
    key.back() |= static_cast<uint64_t>(piece.size()) << 56;
    return key;
  }
  static size_t SlotOf(const Key& key);

  std::vector<Slot> slots_;
  struct Node {
    int32_t id, previous, next;
  };
  std::vector<Node> nodes_;
  struct Candidate {
    int32_t rank, left;  // the merge, and the node that it begins at
  };
  std::vector<Candidate> heap_;
};

// Scratch of encodings that have ended, for those that begin. Thread-safe.
class BpeScratchPool {
 public:
  std::unique_ptr<BpeScratch> Take();
  void Return(std::unique_ptr<BpeScratch> scratch);

 private:
  base::Mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_ GUARDED_BY(mutex_);
};

// Immutable and thread-safe.
class BpeModel {
 public:
  // kInvalidArgument for ids that two tokens have, bytes without a token, and merges of ids that
  // have none.
  static StatusOr<BpeModel> Create(BpeTables tables);
  // Of tokens that are texts: for MergeIds, not for Encode.
  static StatusOr<BpeModel> CreateOfTexts(BpeTables tables);

  // Appends the ids of the piece, of at most kMaxPieceBytes.
  void Encode(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  // Appends what becomes of ids in [0, num_ids), at most kMaxPieceBytes of them. Holds no turn: it
  // is the caller's, who has the ids in memory as well.
  void MergeIds(std::span<const int32_t> symbols, BpeScratch* scratch,
                std::vector<int32_t>* ids) const;
  int64_t num_ids() const { return static_cast<int64_t>(tables_.tokens.size()); }
  // "" where the id has no token. id is in [0, num_ids).
  const std::string& token(int32_t id) const { return tables_.tokens[static_cast<size_t>(id)]; }
  const BpeTables& tables() const { return tables_; }

 private:
  // Pair to rank and result by open addressing; a key of ~0 is a free slot.
  struct PairSlot {
    uint64_t key = ~uint64_t{0};
    int32_t rank = 0, result = 0;
  };

  explicit BpeModel(BpeTables tables) : tables_(std::move(tables)) {}
  Status AddTokens();
  Status AddMerges();
  const PairSlot* FindPair(int32_t left, int32_t right) const;
  void Merge(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  // symbol(i) is the id of the i-th of `size` symbols.
  template <class Symbol>
  void MergeAll(size_t size, Symbol&& symbol, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  template <class Symbol>
  void MergeFew(size_t size, Symbol&& symbol, std::vector<int32_t>* ids) const;
  template <class Symbol>
  void MergeMany(size_t size, Symbol&& symbol, BpeScratch* scratch,
                 std::vector<int32_t>* ids) const;
  void Propose(BpeScratch* scratch, int32_t left) const;

  BpeTables tables_;
  std::array<int32_t, 256> bytes_{};
  std::vector<PairSlot> pairs_;
  uint64_t pair_mask_ = 0;
  std::unordered_map<std::string_view, int32_t> ids_;  // only with ignore_merges; views of tables_
};

}  // namespace mt::data
