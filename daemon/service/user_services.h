// The gRPC handlers of api.proto: thin, each takes its call to the core's thread and back. Services
// as opaque pointers, so that no other file needs gRPC's headers.
#pragma once

#include <memory>
#include <vector>

namespace grpc {
class Service;
}

namespace mt::daemon {

class CoreLoop;

// Jobs, Operations, Nodes, JobTelemetry. They borrow the loop.
std::vector<std::unique_ptr<grpc::Service>> MakeUserServices(CoreLoop* loop);
// Worker.
std::unique_ptr<grpc::Service> MakeWorkerService(CoreLoop* loop);

}  // namespace mt::daemon
