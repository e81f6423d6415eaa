// The gRPC handlers of api.proto: thin, each takes its call to the core's thread and back. Services
// as opaque pointers, so that no other file needs gRPC's headers.
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

class CoreLoop;
class HistoryReader;

// Fills what Admin.GetInfo answers; called on gRPC's threads.
using ServerInfoSource = std::function<void(megatrain::v1::ServerInfo*)>;

// Jobs, Checkpoints, Operations, Nodes, Admin, JobTelemetry. They borrow loop and reader.
std::vector<std::unique_ptr<grpc::Service>> MakeUserServices(CoreLoop* loop, HistoryReader* reader,
                                                             ServerInfoSource info);
std::unique_ptr<grpc::Service> MakeTelemetryService(CoreLoop* loop, HistoryReader* reader);
// Worker.
std::unique_ptr<grpc::Service> MakeWorkerService(CoreLoop* loop);

}  // namespace mt::daemon
