// Two waits of one connection, with the word between them.
#include "client/session/dial.h"

#include <cstdio>

#include <fmt/format.h>

#include "common/rpc/channel.h"

namespace mt::client {

Status Dial(grpc::Channel& channel, const rpc::Endpoint& endpoint, const DialArgs& args) {
  constexpr char kWhat[] = "coordinator";
  if (rpc::WaitConnected(channel, endpoint, kWhat, args.told_after).ok()) return OkStatus();
  if (args.tell) {
    args.tell();
  } else {
    std::fputs(fmt::format("mtctl: waiting for the {} at {}, {:g} s at most\n", kWhat,
                           endpoint.ToString(), std::chrono::duration<double>(args.limit).count())
                   .c_str(),
               stderr);
  }
  if (rpc::WaitConnected(channel, endpoint, kWhat, args.limit - args.told_after).ok())
    return OkStatus();
  return base::Unavailable("no {} at {} (waited {} ms)", kWhat, endpoint.ToString(),
                           args.limit.count());
}

}  // namespace mt::client
