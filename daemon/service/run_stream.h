// One way for every stream to a client: a bounded subscription from the core's thread, written as
// the client reads. Included by the handlers' .cc files only (gRPC).
#pragma once

#include <string>
#include <utility>

#include <grpcpp/support/server_callback.h>

#include "daemon/core/api.h"
#include "daemon/core/ledger.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/stream_writer.h"
#include "daemon/service/unary.h"

namespace mt::daemon {

// `open(core)` gives the stream or why there is none; `close(core, job uid, subscription)` forgets
// it.
template <class Message, class Item, class Open, class Close>
grpc::ServerWriteReactor<Message>* RunStream(CoreLoop* loop, StreamWriter<Message, Item>* writer,
                                             Open open, Close close) {
  loop->Post([loop, handle = writer->handle(), open = std::move(open), close](Core& core) {
    auto followed = open(core);
    core.ledger().AfterCommit(
        [loop, handle, close, followed = std::move(followed)](const Status& commit) mutable {
          if (!commit.ok() || !followed.ok()) {
            handle.Fail(commit.ok() ? followed.status() : StoreFailed(commit));
            return;
          }
          const auto source = followed->subscription;
          handle.Start(source, [loop, close, uid = followed->job_uid, source] {
            loop->Post([close, uid, source](Core& later) { close(later, uid, source.get()); });
          });
        });
  });
  return writer;
}

}  // namespace mt::daemon
