// Writes event files on a thread of its own, because a file server that hangs blocks. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "worker/node/tensorboard/event_files.h"

namespace mt::node {

class EventFileThread final : public EventFiles {
 public:
  static constexpr size_t kMaxQueuedBytes = 16 << 20;

  // `clock` gives the starts in the names of files, and must outlive this. Starts the thread.
  explicit EventFileThread(const base::Clock* clock, size_t max_queued_bytes = kMaxQueuedBytes);
  // Writes what waits, then joins the thread; blocks while a write does.
  ~EventFileThread() override;
  EventFileThread(const EventFileThread&) = delete;
  EventFileThread& operator=(const EventFileThread&) = delete;

  void Begin(const EventFilePlace& place, std::string head) override;
  void Append(const EventFilePlace& place, std::string records) override;
  void Close(const EventFilePlace& place) override;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace mt::node
