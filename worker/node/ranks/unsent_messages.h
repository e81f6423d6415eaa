// Reads the messages that a rank has left because nobody had acknowledged them (unsent.pb):
// RankMessages, each preceded by its length as a varint. Pure.
#pragma once

#include <functional>
#include <string_view>

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::node {

// Calls `visit` for each complete message, in order. False if the end is torn or cannot be parsed;
// the messages before it count.
bool ReadUnsent(std::string_view bytes,
                const std::function<void(const megatrain::v1::RankMessage&)>& visit);

}  // namespace mt::node
