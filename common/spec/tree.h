// YAML text as a plain tree of scalars, lists and maps. It keeps what decides a value's meaning
// (whether it was quoted) and refuses what a job does not need: anchors, aliases, tags, duplicate
// keys, several documents, deep nesting. Any bytes are safe. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::spec {

// A node owns its children.
struct TreeNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;  // for a scalar: taken literally, never as null, auto or none
  std::string scalar;
  std::vector<std::string> keys;  // for a map: unique, in the order of the text
  std::vector<TreeNode> items;  // for a list: members; for a map: items[i] is the value of keys[i]

  // The value of `key`, or nullptr.
  TreeNode* Find(std::string_view key);
  // Appends a key that is not there yet; the pointer is valid until the next one is added.
  TreeNode* AddKey(std::string key, TreeNode value);
};

// InvalidArgument names the line of the error. An empty text gives kNull.
StatusOr<TreeNode> ParseTree(std::string_view text);

// Applies "a.b=value" to *root: creates maps on the way and replaces what the path held.
// InvalidArgument where the assignment is malformed.
[[nodiscard]] Status ApplyOverride(std::string_view assignment, TreeNode* root);

// A user's text for use in a message: shortened, without control characters.
std::string Shown(std::string_view text);

}  // namespace mt::spec
