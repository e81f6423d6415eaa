// YAML events of yaml-cpp to the tree. Its own node type is not used, as it accepts aliases and
// hides duplicate keys.
#include "common/spec/tree.h"

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace mt::spec {
namespace {

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxNodes = 20'000;
constexpr size_t kMaxShown = 60;

// Thrown out of yaml-cpp's callbacks and caught in ParseTree.
class Refusal final : public std::runtime_error {
 public:
  Refusal(const YAML::Mark& mark, const std::string& what)
      : std::runtime_error(fmt::format("line {}: {}", mark.line + 1, what)) {}
};

// Builds the tree from the parser's events.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(TreeNode* root) : root_(root) {}

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(mark, "", anchor, TreeNode{});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw Refusal(mark, "anchors and aliases are not accepted");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    TreeNode node;
    node.kind = TreeNode::Kind::kScalar;
    node.quoted = tag == "!";
    node.scalar = value;
    const bool null = !node.quoted && (value.empty() || value == "~" || value == "null");
    Add(mark, tag, anchor, null ? TreeNode{} : std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, TreeNode::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, TreeNode::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Level {
    TreeNode* node;
    bool has_key = false;
    std::string key = {};
    std::unordered_set<std::string> seen = {};
  };

  // A node's vectors grow only while it is the innermost open node, so the pointers in open_ stay
  // valid.
  TreeNode* Add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                TreeNode node) {
    if (anchor != 0) throw Refusal(mark, "anchors and aliases are not accepted");
    if (!tag.empty() && tag != "?" && tag != "!") throw Refusal(mark, "tags are not accepted");
    if (++num_nodes_ > kMaxNodes) throw Refusal(mark, "too many values for a job");
    if (open_.empty()) {
      *root_ = std::move(node);
      return root_;
    }
    Level& level = open_.back();
    if (level.node->kind == TreeNode::Kind::kList) {
      return &level.node->items.emplace_back(std::move(node));
    }
    if (!level.has_key) {
      TakeKey(mark, node, &level);
      return nullptr;
    }
    level.has_key = false;
    return level.node->AddKey(std::move(level.key), std::move(node));
  }

  static void TakeKey(const YAML::Mark& mark, const TreeNode& node, Level* level) {
    if (node.kind != TreeNode::Kind::kScalar) throw Refusal(mark, "a key must be a word");
    if (!level->seen.insert(node.scalar).second) {
      throw Refusal(mark, "\"" + Shown(node.scalar) + "\" is given twice");
    }
    level->key = node.scalar;
    level->has_key = true;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            TreeNode::Kind kind) {
    if (open_.size() >= kMaxDepth) throw Refusal(mark, "nested too deeply for a job");
    TreeNode node;
    node.kind = kind;
    TreeNode* added = Add(mark, tag, anchor, std::move(node));
    if (added == nullptr) throw Refusal(mark, "a key must be a word");
    open_.push_back({.node = added});
  }

  TreeNode* root_;
  std::vector<Level> open_;
  size_t num_nodes_ = 0;
};

// Length of the UTF-8 sequence that a lead byte announces; 0 for a byte that cannot lead.
size_t SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if ((lead & 0xF0) == 0xE0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Protobuf requires such text
// in string fields.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = SequenceLength(lead);
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    if (length == 3 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) return false;
    if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return false;
    i += length;
  }
  return true;
}

// The components of "a.b"; none where one is empty, there are too many, or the text is not UTF-8.
std::vector<std::string> PathKeys(std::string_view path) {
  std::vector<std::string> out;
  if (!IsUtf8(path)) return out;
  for (;;) {
    const size_t dot = path.find('.');
    if (dot == 0 || path.empty() || out.size() == kMaxDepth) return {};
    out.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) return out;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace

TreeNode* TreeNode::Find(std::string_view key) {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

TreeNode* TreeNode::AddKey(std::string key, TreeNode value) {
  keys.push_back(std::move(key));
  return &items.emplace_back(std::move(value));
}

StatusOr<TreeNode> ParseTree(std::string_view text) {
  if (!IsUtf8(text) || text.find('\0') != std::string_view::npos) {
    return base::InvalidArgument("the text is not UTF-8");
  }
  TreeNode root;
  Builder builder(&root);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return root;
    TreeNode rest;
    Builder second(&rest);
    if (parser.HandleNextDocument(second)) {
      return base::InvalidArgument("more than one document; give one job");
    }
  } catch (const YAML::Exception& e) {
    return base::InvalidArgument("line {}: not valid YAML: {}", e.mark.line + 1, e.msg);
  } catch (const std::exception& e) {
    return base::InvalidArgument("{}", e.what());
  }
  return root;
}

Status ApplyOverride(std::string_view assignment, TreeNode* root) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return base::InvalidArgument("--set {}: write it as section.field=value", Shown(assignment));
  }
  const std::string_view path = assignment.substr(0, equals);
  const std::string shown = Shown(path);
  const std::vector<std::string> keys = PathKeys(path);
  if (keys.empty()) return base::InvalidArgument("--set {}: no such field", shown);
  StatusOr<TreeNode> value = ParseTree(assignment.substr(equals + 1));
  if (!value.ok()) return base::Annotate(value.status(), "--set " + shown);
  TreeNode* node = root;
  for (const std::string& key : keys) {
    if (node->kind == TreeNode::Kind::kNull) node->kind = TreeNode::Kind::kMap;
    if (node->kind != TreeNode::Kind::kMap) {
      return base::InvalidArgument("--set {}: what stands above \"{}\" is no section", shown,
                                   Shown(key));
    }
    TreeNode* child = node->Find(key);
    node = child != nullptr ? child : node->AddKey(key, TreeNode{});
  }
  *node = *std::move(value);
  return OkStatus();
}

std::string Shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxShown)) {
    const bool plain = c >= ' ' && c <= '~';
    out += plain ? c : '?';
  }
  if (text.size() > kMaxShown) out += "...";
  return out;
}

}  // namespace mt::spec
