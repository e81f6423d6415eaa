// The file PINNED in a checkpoint's folder: an operator's word that the checkpoint is never removed
// by itself. Its being there is what counts; what it holds is for people. Functions block;
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::checkpoint {

struct Pin {
  std::string reason;  // as it was given, not cleaned; may be empty
  std::string made;    // UTC; empty where the file does not tell
};

inline constexpr std::string_view kPinName = "PINNED";
inline constexpr int kPinVersion = 1;

// The pin as JSON text (FORMAT.md); and from arbitrary bytes, of which a pin is made that tells
// nothing where they are damaged or newer.
std::string ToJson(const Pin& pin);
Pin ParsePin(std::string_view json);

// True unless the folder certainly has no such file: what cannot be looked at is not removed.
bool IsPinned(const std::string& folder);
// nullopt: not pinned.
std::optional<Pin> ReadPin(const std::string& folder);
// Pins the checkpoint in `folder`, durably; one that is pinned gets the new reason.
Status WritePin(const std::string& folder, std::string_view reason);
// kNotFound: it is not pinned.
Status RemovePin(const std::string& folder);

}  // namespace mt::checkpoint
