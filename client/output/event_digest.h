// Events for people: what happened several times is one line with a count. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "client/output/tables.h"

namespace megatrain::v1 {
class EventsChunk;
}

namespace mt::client {

// Which events, and how many lines of them.
struct DigestArgs {
  bool errors_only = false;  // those with a cause, or of a failed save
  size_t lines = 5;
};

// The newest ones, oldest first; "" for none: "  3m12s ago  SaveFailed  disk full  (4 times)".
// Events of one type and message are one line, at the time of the last of them.
std::string EventDigest(const v1::EventsChunk& events, const DigestArgs& which,
                        const TableArgs& args);

}  // namespace mt::client
