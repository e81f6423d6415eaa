// Reads what a rank has left of messages that nobody acknowledged (unsent.pb): RankMessages, each
// after its length as a varint. Pure.
#pragma once

#include <functional>
#include <string_view>

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::node {

// Calls `visit` for each whole message. False where the end is torn or makes no sense; what comes
// before it counts.
bool ReadUnsent(std::string_view bytes,
                const std::function<void(const megatrain::v1::RankMessage&)>& visit);

}  // namespace mt::node
