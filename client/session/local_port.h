// TCP ports of 127.0.0.1: one that is free, and who has one that is not. Linux's /proc/net/tcp and
// /proc/<pid>/fd.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::client {

// "127.0.0.1:PORT" with a port that was free a moment ago.
StatusOr<std::string> FreeLocalAddress();
// Whether a server could listen there now.
bool CanListenAt(uint16_t port);
// Whether somebody listens there now.
bool IsListening(uint16_t port);
// "nginx (process 123)" of a program that listens at this port on this machine; "another program"
// where that cannot be found out, such as for another user's.
std::string ListenerAt(uint16_t port);

}  // namespace mt::client
