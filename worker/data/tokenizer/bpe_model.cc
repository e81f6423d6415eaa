// Most pieces of text were met shortly before: a cache of a line per piece answers those. The rest
// are merged, the pair of the lowest rank first and the leftmost of equals: few symbols by
// looking over all pairs each time, many through a heap, whose stale entries are passed over.
#include "worker/data/tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace mt::data {
namespace {

constexpr size_t kSlots = size_t{1} << 15;
constexpr size_t kFewSymbols = 64;
constexpr size_t kLongPiece = size_t{64} << 10;  // its memory is not kept
constexpr int32_t kNone = -1;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

uint64_t Mixed(uint64_t value) {
  value ^= value >> 32;
  value *= kGolden;
  return value ^ (value >> 29);
}

}  // namespace

LongPieceTurn::LongPieceTurn(size_t bytes) {
  static base::Mutex mutex;
  if (bytes > kLongPiece) alone_.emplace(&mutex);
}

BpeScratch::BpeScratch() : slots_(kSlots) {}

size_t BpeScratch::SlotOf(const Key& key) {
  const uint64_t mixed =
      Mixed(key[0] * kGolden ^ std::rotl(key[1] * kGolden, 17) ^ std::rotl(key[2], 31) ^ key[3]);
  return mixed & (kSlots - 1);
}

std::unique_ptr<BpeScratch> BpeScratchPool::Take() {
  {
    const base::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      std::unique_ptr<BpeScratch> taken = std::move(free_.back());
      free_.pop_back();
      return taken;
    }
  }
  return std::make_unique<BpeScratch>();
}

void BpeScratchPool::Return(std::unique_ptr<BpeScratch> scratch) {
  const base::MutexLock lock(&mutex_);
  free_.push_back(std::move(scratch));
}

StatusOr<BpeModel> BpeModel::Create(BpeTables tables) {
  BpeModel model(std::move(tables));
  RETURN_IF_ERROR(model.AddTokens());
  RETURN_IF_ERROR(model.AddMerges());
  return model;
}

StatusOr<BpeModel> BpeModel::CreateOfTexts(BpeTables tables) {
  BpeModel model(std::move(tables));
  RETURN_IF_ERROR(model.AddMerges());
  return model;
}

Status BpeModel::AddTokens() {
  bytes_.fill(kNone);
  const std::vector<std::string>& tokens = tables_.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].size() == 1)
      bytes_[static_cast<unsigned char>(tokens[id][0])] = static_cast<int32_t>(id);
    if (tables_.ignore_merges && !tokens[id].empty())
      ids_.emplace(tokens[id], static_cast<int32_t>(id));
  }
  const auto missing = std::ranges::find(bytes_, kNone);
  if (missing == bytes_.end()) return OkStatus();
  return base::InvalidArgument(
      "byte {:#04x} has no token: a byte-level vocabulary has one for each of the 256 bytes",
      missing - bytes_.begin());
}

Status BpeModel::AddMerges() {
  const size_t capacity = std::bit_ceil(std::max<size_t>(16, tables_.merges.size() * 2));
  pairs_.resize(capacity);
  pair_mask_ = capacity - 1;
  int32_t rank = 0;
  for (const BpeMerge& merge : tables_.merges) {
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || id >= num_ids() || token(id).empty())
        return base::InvalidArgument("merge {} is of id {}, which has no token", rank, id);
    }
    const uint64_t key = PairKey(merge.left, merge.right);
    uint64_t at = Mixed(key) & pair_mask_;
    while (pairs_[at].key != ~uint64_t{0} && pairs_[at].key != key) at = (at + 1) & pair_mask_;
    // Of a pair that is listed twice the last rank holds, as in the tokenizers library.
    pairs_[at] = {.key = key, .rank = rank, .result = merge.result};
    ++rank;
  }
  return OkStatus();
}

const BpeModel::PairSlot* BpeModel::FindPair(int32_t left, int32_t right) const {
  const uint64_t key = PairKey(left, right);
  for (uint64_t at = Mixed(key) & pair_mask_;; at = (at + 1) & pair_mask_) {
    if (pairs_[at].key == key) return &pairs_[at];
    if (pairs_[at].key == ~uint64_t{0}) return nullptr;
  }
}

void BpeModel::Encode(std::string_view piece, BpeScratch* scratch,
                      std::vector<int32_t>* ids) const {
  scratch->Encode(piece, ids, [&] { Merge(piece, scratch, ids); });
}

void BpeModel::Merge(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (tables_.ignore_merges) {
    const auto found = ids_.find(piece);
    if (found != ids_.end()) return ids->push_back(found->second);
  }
  const LongPieceTurn turn(piece.size());
  const auto symbol = [&](size_t i) { return bytes_[static_cast<unsigned char>(piece[i])]; };
  MergeAll(piece.size(), symbol, scratch, ids);
}

void BpeModel::MergeIds(std::span<const int32_t> symbols, BpeScratch* scratch,
                        std::vector<int32_t>* ids) const {
  MergeAll(
      symbols.size(), [&](size_t i) { return symbols[i]; }, scratch, ids);
}

template <class Symbol>
void BpeModel::MergeAll(size_t size, Symbol&& symbol, BpeScratch* scratch,
                        std::vector<int32_t>* ids) const {
  if (size <= kFewSymbols) return MergeFew(size, symbol, ids);
  MergeMany(size, symbol, scratch, ids);
}

template <class Symbol>
void BpeModel::MergeFew(size_t size, Symbol&& symbol, std::vector<int32_t>* ids) const {
  struct Pair {
    int32_t rank = std::numeric_limits<int32_t>::max();
    int32_t result = kNone;
  };
  std::array<int32_t, kFewSymbols> parts;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::array<Pair, kFewSymbols> pairs;     // pairs[i] is of parts i and i + 1
  const auto look = [&](size_t i) {
    const PairSlot* const found = FindPair(parts[i], parts[i + 1]);
    pairs[i] = found == nullptr ? Pair{} : Pair{.rank = found->rank, .result = found->result};
  };
  for (size_t i = 0; i < size; ++i) parts[i] = symbol(i);
  for (size_t i = 0; i + 1 < size; ++i) look(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].result == kNone) break;
    parts[best] = pairs[best].result;
    --size;
    std::copy(parts.begin() + best + 2, parts.begin() + size + 1, parts.begin() + best + 1);
    if (best + 1 < size) {
      std::copy(pairs.begin() + best + 2, pairs.begin() + size, pairs.begin() + best + 1);
      look(best);
    }
    if (best > 0) look(best - 1);
  }
  ids->insert(ids->end(), parts.begin(), parts.begin() + size);
}

// Puts the pair of node `left` and the next one on the heap, if it can be merged.
void BpeModel::Propose(BpeScratch* scratch, int32_t left) const {
  const BpeScratch::Node& node = scratch->nodes_[static_cast<size_t>(left)];
  if (node.next == kNone) return;
  const int32_t right_id = scratch->nodes_[static_cast<size_t>(node.next)].id;
  const PairSlot* const found = FindPair(node.id, right_id);
  if (found == nullptr) return;
  scratch->heap_.push_back({.rank = found->rank, .left = left});
}

template <class Symbol>
void BpeModel::MergeMany(size_t size, Symbol&& symbol, BpeScratch* scratch,
                         std::vector<int32_t>* ids) const {
  auto& nodes = scratch->nodes_;
  auto& heap = scratch->heap_;
  const bool is_long = size > kLongPiece;
  // Each merge leaves at most one more on the heap; room that is not used is never touched.
  if (is_long) heap.reserve(2 * size);
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return std::pair(a.rank, a.left) > std::pair(b.rank, b.left);
  };
  const auto count = static_cast<int32_t>(size);
  nodes.resize(size);
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    nodes[static_cast<size_t>(i)] = {.id = symbol(static_cast<size_t>(i)),
                                     .previous = i - 1,
                                     .next = i + 1 < count ? i + 1 : kNone};
  }
  for (int32_t i = 0; i + 1 < count; ++i) Propose(scratch, i);
  std::ranges::make_heap(heap, later);
  const auto propose = [&](int32_t left) {
    const size_t before = heap.size();
    Propose(scratch, left);
    if (heap.size() > before) std::ranges::push_heap(heap, later);
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const BpeScratch::Candidate best = heap.back();
    heap.pop_back();
    // What stood there when it was proposed may have been merged since.
    const BpeMerge& merge = tables_.merges[static_cast<size_t>(best.rank)];
    BpeScratch::Node& left = nodes[static_cast<size_t>(best.left)];
    if (left.id != merge.left || left.next == kNone) continue;
    BpeScratch::Node& right = nodes[static_cast<size_t>(left.next)];
    if (right.id != merge.right) continue;
    left.id = merge.result;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) nodes[static_cast<size_t>(left.next)].previous = best.left;
    propose(best.left);
    if (left.previous != kNone) propose(left.previous);
  }
  for (int32_t i = 0; i != kNone; i = nodes[static_cast<size_t>(i)].next)
    ids->push_back(nodes[static_cast<size_t>(i)].id);
  if (is_long) {
    nodes = {};
    heap = {};
  }
}

}  // namespace mt::data
