// The services of users except JobTelemetry: one class per service, one short method per RPC.
#include "daemon/service/user_services.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/api/api.h"
#include "daemon/service/backup_stream.h"
#include "daemon/service/run_stream.h"
#include "daemon/service/stream_writer.h"
#include "daemon/service/unary.h"
#include "megatrain/v1/api.grpc.pb.h"

namespace mt::daemon {
namespace {

using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;

class JobsService final : public v1::Jobs::CallbackService {
 public:
  explicit JobsService(CoreLoop* loop) : loop_(loop) {}

  Unary* Submit(Context* context, const v1::SubmitRequest* request,
                v1::SubmitResponse* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().jobs().Submit(*request, ActorOf(*context), response);
    });
  }
  Unary* Validate(Context* context, const v1::ValidateRequest* request,
                  v1::ValidateResponse* response) override {
    JobsApi::Validate(*request, response);
    Unary* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  Unary* Get(Context* context, const v1::GetJobRequest* request, v1::Job* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().jobs().Get(*request, response);
    });
  }
  Unary* List(Context* context, const v1::ListJobsRequest* request,
              v1::ListJobsResponse* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().jobs().List(*request, response);
    });
  }
  Unary* Update(Context* context, const v1::UpdateJobRequest* request, v1::Job* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().jobs().Update(*request, ActorOf(*context), response);
    });
  }
  Unary* Pause(Context* context, const v1::PauseRequest* request,
               v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Pause(*request, ActorOf(*context), response);
    });
  }
  Unary* Resume(Context* context, const v1::ResumeRequest* request,
                v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Resume(*request, ActorOf(*context), response);
    });
  }
  Unary* Cancel(Context* context, const v1::CancelRequest* request,
                v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Cancel(*request, ActorOf(*context), response);
    });
  }
  Unary* Kill(Context* context, const v1::KillRequest* request, v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Kill(*request, ActorOf(*context), response);
    });
  }
  Unary* Delete(Context* context, const v1::DeleteJobRequest* request,
                v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Delete(*request, ActorOf(*context), response);
    });
  }
  Unary* Profile(Context* context, const v1::ProfileRequest* request,
                 v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Profile(*request, ActorOf(*context), response);
    });
  }
  Unary* Decode(Context* context, const v1::DecodeRequest* request,
                v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().Decode(*request, ActorOf(*context), response);
    });
  }
  Unary* Adopt(Context* context, const v1::AdoptRequest* request, v1::Job* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().orphans().Adopt(*request, ActorOf(*context), response);
    });
  }
  Unary* HoldOutput(Context* context, const v1::HoldOutputRequest* request,
                    v1::HoldOutputResponse* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().reader_leases().Hold(*request, response);
    });
  }
  Unary* WhoHolds(Context* context, const v1::WhoHoldsRequest* request,
                  v1::WhoHoldsResponse* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().slot_holders().WhoHolds(*request, response);
    });
  }
  grpc::ServerWriteReactor<v1::Job>* Watch(Context* context,
                                           const v1::GetJobRequest* request) override {
    using Writer = StreamWriter<v1::Job, std::shared_ptr<const v1::Job>>;
    auto* writer = new Writer(context, [](v1::Job* out, const auto& job, int64_t) { *out = *job; });
    return RunStream(
        loop_, writer,
        [request = *request](Core& core) { return core.api().streams().WatchJob(request); },
        [](Core& core, const std::string& uid, const JobSubscription* gone) {
          core.feeds().jobs().Unwatch(uid, gone);
        });
  }

 private:
  CoreLoop* loop_;
};

class CheckpointsService final : public v1::Checkpoints::CallbackService {
 public:
  explicit CheckpointsService(CoreLoop* loop) : loop_(loop) {}

  Unary* Trigger(Context* context, const v1::TriggerCheckpointRequest* request,
                 v1::Operation* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().verbs().TriggerCheckpoint(*request, ActorOf(*context), response);
    });
  }
  Unary* List(Context* context, const v1::ListCheckpointsRequest* request,
              v1::ListCheckpointsResponse* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().jobs().ListCheckpoints(*request, response);
    });
  }

 private:
  CoreLoop* loop_;
};

// A call that may take minutes. When the client leaves, its waiter in the core is removed at once.
class WaitReactor final : public grpc::ServerUnaryReactor {
 public:
  WaitReactor(CoreLoop* loop, Context* context, const v1::WaitOperationRequest* request,
              v1::Operation* response)
      : loop_(loop), id_(std::make_shared<int64_t>(0)) {
    loop_->Post([this, id = id_, context, request, response](Core& core) {
      *id = core.api().operations().Wait(
          *request,
          [this, context, response](const Status& status, const v1::Operation* operation) {
            if (operation != nullptr) *response = *operation;
            Finish(rpc::ToGrpc(status, context));
          });
    });
  }
  void OnCancel() override {
    loop_->Post([id = id_](Core& core) { core.api().operations().CancelWait(*id); });
  }
  void OnDone() override {
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }

 private:
  CoreLoop* loop_;
  std::shared_ptr<int64_t> id_;  // used on the core's thread only
};

class OperationsService final : public v1::Operations::CallbackService {
 public:
  explicit OperationsService(CoreLoop* loop) : loop_(loop) {}

  Unary* Get(Context* context, const v1::GetOperationRequest* request,
             v1::Operation* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().operations().Get(*request, response);
    });
  }
  Unary* List(Context* context, const v1::ListOperationsRequest* request,
              v1::ListOperationsResponse* response) override {
    return RunRead(loop_, context, [request, response](Core& core) {
      return core.api().operations().List(*request, response);
    });
  }
  Unary* Wait(Context* context, const v1::WaitOperationRequest* request,
              v1::Operation* response) override {
    return new WaitReactor(loop_, context, request, response);
  }

 private:
  CoreLoop* loop_;
};

class NodesService final : public v1::Nodes::CallbackService {
 public:
  explicit NodesService(CoreLoop* loop) : loop_(loop) {}

  Unary* List(Context* context, const v1::ListNodesRequest*,
              v1::ListNodesResponse* response) override {
    return RunRead(loop_, context, [response](Core& core) {
      core.api().nodes().List(response);
      return OkStatus();
    });
  }
  Unary* DeclareDead(Context* context, const v1::DeclareDeadRequest* request,
                     v1::Node* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().nodes().DeclareDead(*request, ActorOf(*context), response);
    });
  }
  Unary* Delete(Context* context, const v1::DeleteNodeRequest* request,
                v1::DeleteNodeResponse*) override {
    return RunUnary(loop_, context, [context, request](Core& core) {
      return core.api().nodes().Delete(*request, ActorOf(*context));
    });
  }
  Unary* Readmit(Context* context, const v1::ReadmitRequest* request, v1::Node* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().nodes().Readmit(*request, ActorOf(*context), response);
    });
  }
  Unary* ListOrphans(Context* context, const v1::ListOrphansRequest*,
                     v1::ListOrphansResponse* response) override {
    return RunUnary(loop_, context, [response](Core& core) {
      core.api().orphans().List(response);
      return OkStatus();
    });
  }
  Unary* KillOrphan(Context* context, const v1::KillOrphanRequest* request,
                    v1::KillOrphanResponse* response) override {
    return RunUnary(loop_, context, [context, request, response](Core& core) {
      return core.api().orphans().Kill(*request, ActorOf(*context), response);
    });
  }

 private:
  CoreLoop* loop_;
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(CoreLoop* loop, BackupRunner* backups, ServerInfoSource info)
      : loop_(loop), backups_(backups), info_(std::move(info)) {}

  Unary* GetInfo(Context* context, const v1::GetInfoRequest*, v1::ServerInfo* response) override {
    info_(response);
    Unary* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  Unary* DeclareRestore(Context* context, const v1::DeclareRestoreRequest* request,
                        v1::ServerInfo* response) override {
    return RunUnary(loop_, context, [this, context, request, response](Core& core) {
      RETURN_IF_ERROR(core.api().admin().DeclareRestore(*request, ActorOf(*context)));
      info_(response);
      core.api().admin().Describe(response);
      return OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::BackupChunk>* Backup(Context* context,
                                                    const v1::BackupRequest*) override {
    return StreamBackup(loop_, backups_, context);
  }

 private:
  CoreLoop* loop_;
  BackupRunner* backups_;
  ServerInfoSource info_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeUserServices(CoreLoop* loop, HistoryReader* reader,
                                                             BackupRunner* backups,
                                                             ServerInfoSource info) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<JobsService>(loop));
  services.push_back(std::make_unique<CheckpointsService>(loop));
  services.push_back(std::make_unique<OperationsService>(loop));
  services.push_back(std::make_unique<NodesService>(loop));
  services.push_back(std::make_unique<AdminService>(loop, backups, std::move(info)));
  services.push_back(MakeTelemetryService(loop, reader));
  return services;
}

}  // namespace mt::daemon
