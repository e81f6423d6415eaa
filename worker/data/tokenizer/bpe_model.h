// Byte-pair encoding over bytes: tokens are byte strings, and merges join two of them. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

// Memory of one thread's encoding: the pieces that it met last, and room to merge in. Belongs to
// one thread at a time, and to one model.
class BpeScratch {
 public:
  BpeScratch();

 private:
  friend class BpeModel;
  static constexpr size_t kKeyBytes = 32;  // the last one holds the length
  static constexpr int kMaxIds = 7;
  struct alignas(64) Slot {
    std::array<uint64_t, kKeyBytes / 8> key;
    std::array<int32_t, kMaxIds> ids;
    int32_t count;  // 0: free
  };
  std::vector<Slot> slots_;
  struct Node {
    int32_t id, previous, next;
  };
  std::vector<Node> nodes_;
  struct Candidate {
    int32_t rank, left, left_id, right_id;
  };
  std::vector<Candidate> heap_;
  std::vector<int32_t> found_;
};

// Immutable and thread-safe.
class BpeModel {
 public:
  // kInvalidArgument for ids that two tokens have, bytes without a token, and merges of ids that
  // have none.
  static StatusOr<BpeModel> Create(BpeTables tables);

  // Appends the ids of the piece, of at most kMaxPieceBytes.
  void Encode(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;
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
  void MergeFew(std::string_view piece, std::vector<int32_t>* ids) const;
  void MergeMany(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void Propose(BpeScratch* scratch, int32_t left) const;

  BpeTables tables_;
  std::array<int32_t, 256> bytes_{};
  std::vector<PairSlot> pairs_;
  uint64_t pair_mask_ = 0;
  std::unordered_map<std::string_view, int32_t> ids_;  // only with ignore_merges; views of tables_
};

}  // namespace mt::data
