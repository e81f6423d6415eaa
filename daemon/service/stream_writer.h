// Writes a bounded subscription to one client of a server-streaming call. A client that leaves, a
// job that ends and a coordinator that stops all end in the same way. Thread-safe through
// State::mu. Included by the handlers' .cc files only, as it needs gRPC.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "daemon/telemetry/subscription.h"

namespace mt::daemon {

// Message is the RPC's response, Item the subscription's element. It deletes itself when gRPC has
// finished with it.
template <class Message, class Item>
class StreamWriter final : public grpc::ServerWriteReactor<Message> {
 public:
  using Source = Subscription<Item>;
  // Adds an item to the message; `dropped` items were lost immediately before it.
  using Fill = std::function<void(Message* message, const Item& item, int64_t dropped)>;

  // A message carries up to `batch` items, as many as are queued when it is sent.
  StreamWriter(grpc::CallbackServerContext* context, Fill fill, int batch = 1)
      : context_(context),
        fill_(std::move(fill)),
        batch_(batch),
        state_(std::make_shared<State>()) {
    state_->writer = this;
  }

  // The core's reference to the stream. It outlives the writer, after which its calls only clean
  // up.
  class Handle {
   public:
    // Starts the stream. `on_gone` is called once, when the client has left or everything was sent.
    // NOLINTNEXTLINE(performance-unnecessary-value-param): moved where the client is still there.
    void Start(std::shared_ptr<Source> source, std::function<void()> on_gone) {
      {
        const base::MutexLock lock(&state_->mu);
        if (state_->writer != nullptr) {
          state_->source = std::move(source);
          state_->on_gone = std::move(on_gone);
          state_->writer->Next();
          return;
        }
      }
      on_gone();
    }
    // Ends the call with an error instead of starting it.
    void Fail(const Status& status) {
      const base::MutexLock lock(&state_->mu);
      if (state_->writer != nullptr) state_->writer->End(status);
    }

   private:
    friend class StreamWriter;
    explicit Handle(std::shared_ptr<typename StreamWriter::State> state)
        : state_(std::move(state)) {}
    std::shared_ptr<typename StreamWriter::State> state_;
  };
  Handle handle() { return Handle(state_); }

  void OnWriteDone(bool ok) override {
    const base::MutexLock lock(&state_->mu);
    if (ok) {
      Next();
    } else {
      End(base::Error(absl::StatusCode::kCancelled, "the client has left"));
    }
  }
  void OnCancel() override {
    const base::MutexLock lock(&state_->mu);
    cancelled_ = true;
    // A write in flight completes on its own and then sees the flag.
    if (!writing_) End(base::Error(absl::StatusCode::kCancelled, "the client has left"));
  }
  void OnDone() override {
    std::function<void()> on_gone;
    // The subscription's waker refers to the state: release it here, or the two keep each other
    // alive.
    std::shared_ptr<Source> source;
    {
      const base::MutexLock lock(&state_->mu);
      state_->writer = nullptr;
      source = std::move(state_->source);
      on_gone = std::exchange(state_->on_gone, nullptr);
    }
    if (on_gone) on_gone();
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }

 private:
  struct State {
    base::Mutex mu;  // guards all of this and the writer's flags
    StreamWriter* writer = nullptr;
    std::shared_ptr<Source> source;
    std::function<void()> on_gone;
  };

  // Writes the next message, ends the stream, or waits for an item. Called with state_->mu held.
  void Next() {
    writing_ = false;
    if (finished_) return;
    if (cancelled_) {
      End(base::Error(absl::StatusCode::kCancelled, "the client has left"));
      return;
    }
    auto taken = state_->source->Take([state = state_] {
      const base::MutexLock lock(&state->mu);
      if (state->writer != nullptr) state->writer->Next();
    });
    if (taken.item.has_value()) {
      message_.Clear();
      fill_(&message_, *taken.item, taken.dropped);
      for (int i = 1; i < batch_; ++i) {
        // If the end comes next, it is noticed after this write.
        const auto more = state_->source->Take(nullptr);
        if (!more.item.has_value()) break;
        fill_(&message_, *more.item, more.dropped);
      }
      writing_ = true;
      this->StartWrite(&message_);
    } else if (taken.ended) {
      End(taken.status);
    }
  }
  void End(const Status& status) {
    if (std::exchange(finished_, true)) return;
    this->Finish(rpc::ToGrpc(status, context_));
  }

  grpc::CallbackServerContext* context_;
  Fill fill_;
  const int batch_;
  std::shared_ptr<State> state_;
  Message message_;
  // Guarded by state_->mu.
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

}  // namespace mt::daemon
