// The file TAG.json in a checkpoint's folder: what a user calls the checkpoint, and what they store
// with it (DeepSpeed's tag and client_state). A tag names one checkpoint of a directory; one that
// has a tag is not pruned. Functions block; thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"

namespace mt::checkpoint {

struct Label {
  std::string tag;  // empty: only meta
  std::map<std::string, std::string> meta;

  bool empty() const { return tag.empty() && meta.empty(); }
  friend bool operator==(const Label&, const Label&) = default;
};

inline constexpr std::string_view kLabelName = "TAG.json";
inline constexpr int kLabelVersion = 1;

// The label as JSON text (FORMAT.md).
std::string ToJson(const Label& label);
// From arbitrary bytes. kDataLoss: not a label; kFailedPrecondition: of a newer version.
StatusOr<Label> ParseLabel(std::string_view json);

// kNotFound: the checkpoint in `folder` has none. Else ParseLabel's errors and those of reading.
StatusOr<Label> ReadLabel(const std::string& folder);
// True unless the folder certainly has no label: what cannot be looked at is not removed.
bool HasLabel(const std::string& folder);
// Labels the checkpoint `id` of a directory, durably, in place of an earlier label; another one
// that has the tag loses its label after that. kNotFound: there is no such checkpoint.
Status WriteLabel(const std::string& directory, const CheckpointId& id, const Label& label);
// Takes the label from the checkpoint in `folder`, durably. kNotFound: it has none.
Status RemoveLabel(const std::string& folder);
// The newest complete checkpoint with this tag. kNotFound names the tags that there are.
StatusOr<CheckpointId> FindByTag(const std::string& directory, std::string_view tag);

}  // namespace mt::checkpoint
