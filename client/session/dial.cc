// Two waits of one connection, with the word between them.
#include "client/session/dial.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "common/rpc/channel.h"

namespace mt::client {

Status Dial(grpc::Channel& channel, const rpc::Endpoint& endpoint, const DialArgs& args) {
  constexpr char kWhat[] = "coordinator";
  const auto told_after = std::min(args.told_after, args.limit);
  if (rpc::WaitConnected(channel, endpoint, kWhat, told_after).ok()) return OkStatus();
  if (args.tell) {
    args.tell();
  } else if (told_after < args.limit) {
    std::fputs(fmt::format("mtctl: waiting for the {} at {}, {:g} s at most\n", kWhat,
                           endpoint.ToString(), std::chrono::duration<double>(args.limit).count())
                   .c_str(),
               stderr);
  }
  if (rpc::WaitConnected(channel, endpoint, kWhat, args.limit - told_after).ok()) return OkStatus();
  return base::Unavailable("no {} at {} (waited {} ms)", kWhat, endpoint.ToString(),
                           args.limit.count());
}

}  // namespace mt::client
