// The gRPC side of Admin.Backup: passes the pieces of an archive on as fast as the client reads.
// Included by the handlers' .cc files only, as it needs gRPC.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "daemon/service/core_loop.h"

namespace megatrain::v1 {
class BackupChunk;
}

namespace mt::daemon {

class BackupRunner;

// Starts a backup for this call. The stream deletes itself; `loop` and `runner` outlive the server.
grpc::ServerWriteReactor<megatrain::v1::BackupChunk>* StreamBackup(
    CoreLoop* loop, BackupRunner* runner, grpc::CallbackServerContext* context);

}  // namespace mt::daemon
