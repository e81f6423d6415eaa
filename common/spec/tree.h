// YAML text as a plain tree of scalars, lists and maps that keeps what decides a value's meaning
// (was it quoted?) and refuses what a job needs not: anchors, aliases, tags, doubled keys, more
// than one document, deep nesting. Any bytes are safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::spec {

struct TreeNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;  // of a scalar: taken literally, never null, auto or none
  std::string scalar;
  std::vector<std::string> keys;  // of a map, in the order of the text, unique
  std::vector<TreeNode> items;    // of a list; of a map: items[i] is the value of keys[i]

  // nullptr: no such key.
  TreeNode* Find(std::string_view key);
  TreeNode* AddKey(std::string key, TreeNode value);
};

// Errors name the line. An empty text is kNull.
StatusOr<TreeNode> ParseTree(std::string_view text);

// Sets "a.b=value" in *root, making maps on the way. What stood there is replaced.
[[nodiscard]] Status ApplyOverride(std::string_view assignment, TreeNode* root);

// Text of the user in a message: shortened, without control characters.
std::string Shown(std::string_view text);

}  // namespace mt::spec
