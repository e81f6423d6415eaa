// Damaged and hostile forms of a JSON text, by a seed: bits and bytes that change, pieces that go,
// double or come from another text, and values that take the place of others: numbers at the ends
// of their ranges, other types, deep nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mt::checkpoint {

// The same seed gives the same texts. Not thread-safe.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}
  // `text` with one to four changes; pieces come from `other` too.
  std::string Mutate(std::string_view text, std::string_view other);
  // From 0 to below `count`, which is positive.
  size_t Below(size_t count) { return static_cast<size_t>(random_() % count); }

 private:
  void ChangeBytes(std::string* text);
  void MovePieces(std::string* text, std::string_view other);
  void ReplaceToken(std::string* text);
  std::string HostileValue();
  // Begin and size of a random part of a text.
  std::pair<size_t, size_t> Part(std::string_view text, size_t longest);

  std::mt19937_64 random_;
};

}  // namespace mt::checkpoint
