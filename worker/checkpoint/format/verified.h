// The file VERIFIED in a checkpoint's folder: somebody has read the whole checkpoint and found it
// intact. Its being there is what counts; what it holds is for people. Functions block;
// thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::checkpoint {

inline constexpr std::string_view kVerifiedName = "VERIFIED";
inline constexpr int kVerifiedVersion = 1;

// True unless the folder certainly has no such file: what cannot be looked at is not removed.
bool IsVerified(const std::string& folder);
// When it was found intact (UTC); empty: it was not, or the file does not tell.
std::string VerifiedAt(const std::string& folder);
// Durably, with the time of now.
Status WriteVerified(const std::string& folder);
// Durably; OK where there is none.
Status RemoveVerified(const std::string& folder);

}  // namespace mt::checkpoint
