// A stream that breaks is not begun anew: half of a backup and half of a later one are none.
#include "client/session/admin_api.h"

#include <grpcpp/grpcpp.h>

#include "client/session/dial.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::client {

StatusOr<std::unique_ptr<AdminApi>> AdminApi::Connect(const rpc::Endpoint& endpoint,
                                                      std::chrono::milliseconds dial) {
  auto channel = rpc::MakeChannel(endpoint);
  RETURN_IF_ERROR(Dial(*channel, endpoint, {.limit = dial}));
  return std::unique_ptr<AdminApi>(new AdminApi(std::move(channel)));
}

Status AdminApi::Backup(StreamStopper* stopper,
                        const std::function<Status(std::string_view bytes)>& take) const {
  const auto stub = v1::Admin::NewStub(channel_);
  grpc::ClientContext context;
  stopper->Attach(&context);
  const auto reader = stub->Backup(&context, v1::BackupRequest());
  v1::BackupChunk chunk;
  Status taken;
  while (taken.ok() && reader->Read(&chunk)) taken = take(chunk.data());
  if (!taken.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  stopper->Detach();
  return taken.ok() ? rpc::FromGrpc(status, context) : taken;
}

}  // namespace mt::client
