// The common path of every server-streaming call: a bounded subscription is opened on the core's
// thread and written as fast as the client reads. Included by the handlers' .cc files only, as it
// needs gRPC.
#pragma once

#include <string>
#include <utility>

#include <grpcpp/support/server_callback.h>

#include "daemon/api/api.h"
#include "daemon/ledger/ledger.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/stream_writer.h"
#include "daemon/service/unary.h"

namespace mt::daemon {

// `open(core)` returns the subscription with its job, or the error of the call; the stream starts
// after the round, even while the disk is full. `close(core, job uid, subscription)` removes the
// subscription when the client has left or everything was sent. Both run on the core's thread.
// Returns `writer`, which deletes itself.
template <class Message, class Item, class Open, class Close>
grpc::ServerWriteReactor<Message>* RunStream(CoreLoop* loop, StreamWriter<Message, Item>* writer,
                                             Open open, Close close) {
  loop->Post([loop, handle = writer->handle(), open = std::move(open), close](Core& core) {
    auto followed = open(core);
    core.ledger().AfterRound(
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
