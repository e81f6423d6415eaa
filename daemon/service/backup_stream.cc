// The runner's thread waits here for each write before it reads on, so that a slow client costs no
// memory.
#include "daemon/service/backup_stream.h"

#include <future>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "daemon/backup/backup_runner.h"
#include "megatrain/v1/api.pb.h"

namespace mt::daemon {
namespace {

class BackupStream final : public grpc::ServerWriteReactor<megatrain::v1::BackupChunk> {
 public:
  explicit BackupStream(grpc::CallbackServerContext* context) : context_(context) {}

  // The runner's thread.
  bool Take(std::string bytes) {
    if (!WaitForWrite()) return false;
    chunk_.set_data(std::move(bytes));
    {
      const base::MutexLock lock(&mu_);
      writing_ = true;
    }
    StartWrite(&chunk_);
    return true;
  }
  // The runner's thread; nothing is used afterwards.
  void End(const Status& status) {
    WaitForWrite();
    Finish(rpc::ToGrpc(status, context_));
  }

  void OnWriteDone(bool ok) override {
    const base::MutexLock lock(&mu_);
    writing_ = false;
    left_ |= !ok;
    wake_.NotifyOne();
  }
  void OnCancel() override {
    const base::MutexLock lock(&mu_);
    left_ = true;
    wake_.NotifyOne();
  }
  void OnDone() override {
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }

 private:
  // Until no write is in flight: a cancelled call ends its own. False where the client has left.
  bool WaitForWrite() {
    const base::MutexLock lock(&mu_);
    while (writing_) wake_.Wait(&mu_);
    return !left_;
  }

  grpc::CallbackServerContext* context_;
  megatrain::v1::BackupChunk chunk_;
  base::Mutex mu_;
  base::CondVar wake_;
  bool writing_ GUARDED_BY(mu_) = false;
  bool left_ GUARDED_BY(mu_) = false;
};

// Steps are shown before they are on disk. Returns in the round whose commit writes them.
void FlushSoon(CoreLoop* loop) {
  std::promise<void> asked;
  loop->Post([&asked](Core& core) {
    core.FlushSoon();
    asked.set_value();
  });
  asked.get_future().wait();
}

}  // namespace

grpc::ServerWriteReactor<megatrain::v1::BackupChunk>* StreamBackup(
    CoreLoop* loop, BackupRunner* runner, grpc::CallbackServerContext* context) {
  auto* stream = new BackupStream(context);
  runner->Start(
      [loop](std::function<void()> task) {
        loop->Post([task = std::move(task)](Core&) { task(); });
      },
      {.flush = [loop] { FlushSoon(loop); },
       .take = [stream](std::string bytes) { return stream->Take(std::move(bytes)); },
       .end = [stream](const Status& status) { stream->End(status); }});
  return stream;
}

}  // namespace mt::daemon
