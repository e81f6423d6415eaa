// The gRPC handlers of api.proto. They are thin: each moves its call to the core's thread and back.
// Services are returned as opaque pointers, so that no other file needs gRPC's headers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace grpc {
class Service;
}

namespace megatrain::v1 {
class ServerInfo;
}

namespace mt::daemon {

class BackupRunner;
class CoreLoop;
class HistoryReader;

// Fills the answer of Admin.GetInfo; called on gRPC's threads.
using ServerInfoSource = std::function<void(megatrain::v1::ServerInfo*)>;

// The services Jobs, Checkpoints, Operations, Nodes, Admin and JobTelemetry. They borrow loop,
// reader and runner, which must outlive the server.
std::vector<std::unique_ptr<grpc::Service>> MakeUserServices(CoreLoop* loop, HistoryReader* reader,
                                                             BackupRunner* backups,
                                                             ServerInfoSource info);
// The service JobTelemetry alone; MakeUserServices includes it.
std::unique_ptr<grpc::Service> MakeTelemetryService(CoreLoop* loop, HistoryReader* reader);
// The service Worker, for the agents.
std::unique_ptr<grpc::Service> MakeWorkerService(CoreLoop* loop);

}  // namespace mt::daemon
