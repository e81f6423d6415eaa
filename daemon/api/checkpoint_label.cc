// A tag stands where a step or a path may stand (checkpoint.load, mtctl), so it must not look like
// one; and it is shown and typed, so it is plain.
#include "daemon/api/checkpoint_label.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "common/base/plain_text.h"
#include "common/rpc/reason.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

constexpr size_t kMaxTagBytes = 64;
constexpr int kMaxMetaEntries = 32;
constexpr size_t kMaxMetaBytes = 1'024;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetterOrDigit(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The form that tags and keys have in common.
bool IsTagText(std::string_view text) {
  return !text.empty() && text.size() <= kMaxTagBytes && IsLetterOrDigit(text.front()) &&
         std::ranges::all_of(
             text, [](char c) { return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-'; });
}

// As much of what was asked for as a message needs.
std::string Shown(std::string_view text) { return base::CleanLine(text.substr(0, kMaxTagBytes)); }

Status CheckTag(const std::string& tag) {
  if (!IsTagText(tag)) {
    return base::InvalidArgument(
        "a tag has 1 to {} letters, digits, '.', '_' and '-' and begins with a letter or a digit; "
        "not '{}'",
        kMaxTagBytes, Shown(tag));
  }
  if (std::ranges::all_of(tag, IsDigit))
    return base::InvalidArgument("tag '{}' would be taken for a step: add a letter", tag);
  if (tag.starts_with("step-"))
    return base::InvalidArgument("tag '{}' would be taken for a checkpoint's folder", tag);
  if (tag == "none")
    return base::InvalidArgument("tag 'none' could not be loaded: in a job, none means no tag");
  return OkStatus();
}

Status CheckMeta(const v1::CheckpointLabel& label) {
  if (label.meta_size() > kMaxMetaEntries) {
    return base::InvalidArgument("a checkpoint's meta has at most {} entries, not {}",
                                 kMaxMetaEntries, label.meta_size());
  }
  // In the order of keys, so that the same request is refused with the same words.
  std::set<std::string> keys;
  for (const auto& [key, value] : label.meta()) keys.insert(key);
  for (const std::string& key : keys) {
    if (!IsTagText(key)) {
      return base::InvalidArgument(
          "a key of a checkpoint's meta has 1 to {} letters, digits, '.', '_' and '-' and begins "
          "with a letter or a digit; not '{}'",
          kMaxTagBytes, Shown(key));
    }
    const std::string& value = label.meta().at(key);
    if (value.size() > kMaxMetaBytes || !base::IsPlainText(value)) {
      return base::InvalidArgument(
          "the value of meta '{}' must be one line of at most {} bytes of UTF-8 without control "
          "characters",
          key, kMaxMetaBytes);
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckCheckpointLabel(const v1::CheckpointLabel& label) {
  Status checked = label.tag().empty() ? OkStatus() : CheckTag(label.tag());
  if (checked.ok()) checked = CheckMeta(label);
  if (checked.ok()) return checked;
  return rpc::WithReason(checked, rpc::reason::kInvalidRequest);
}

}  // namespace mt::daemon
