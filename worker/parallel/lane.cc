// The two kinds of lanes.
#include "worker/parallel/lane.h"

#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/parallel/comm_thread.h"

namespace mt::parallel {
namespace {

using kernels::Device;
using kernels::Event;
using kernels::Stream;

// Two events a call: what it waits for, and its end.
class StreamLane final : public Lane {
 public:
  StreamLane(Device* device, int window)
      : stream_(device->CreateStream(kernels::StreamPriority::kHigh)),
        begin_(device->CreateEvent()),
        ends_(static_cast<size_t>(window)) {
    for (std::unique_ptr<Event>& end : ends_) end = device->CreateEvent();
  }

  Ticket Post(Stream& caller, Call call) override {
    ++num_posted_;
    if (!status_.ok()) return num_posted_;
    begin_->Record(caller);
    stream_->Wait(*begin_);
    status_ = call(*stream_);
    EndOf(num_posted_).Record(*stream_);
    return num_posted_;
  }

  Status Await(Stream& consumer, Ticket ticket) override {
    CHECK(ticket > 0 && ticket <= num_posted_);
    CHECK_GT(ticket + static_cast<Ticket>(ends_.size()), num_posted_) << "outside of the window";
    if (status_.ok()) consumer.Wait(EndOf(ticket));
    return status_;
  }

  Status status() const override { return status_; }
  bool busy() const override { return false; }

 private:
  Event& EndOf(Ticket ticket) { return *ends_[static_cast<size_t>(ticket) % ends_.size()]; }

  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> begin_;        // waits keep the point of their time
  std::vector<std::unique_ptr<Event>> ends_;  // by ticket modulo the window
  Ticket num_posted_ = 0;
  Status status_;
};

class ThreadLane final : public Lane {
 public:
  ThreadLane(Device* device, const std::string& name)
      : stream_(device->CreateStream(kernels::StreamPriority::kHigh)), thread_(name) {}

  // All that the caller's stream was given is done.
  Ticket Post(Stream& /*caller*/, Call call) override {
    return thread_.Post([stream = stream_.get(), call = std::move(call)] { return call(*stream); });
  }
  Status Await(Stream& /*consumer*/, Ticket ticket) override { return thread_.Wait(ticket); }
  Status status() const override { return thread_.status(); }
  bool busy() const override { return thread_.busy(); }

 private:
  const std::unique_ptr<Stream> stream_;
  CommThread thread_;  // last: it uses the stream
};

}  // namespace

std::unique_ptr<Lane> Lane::Create(Device* device, const std::string& name, int window) {
  if (device->Enqueues()) return std::make_unique<StreamLane>(device, window);
  return std::make_unique<ThreadLane>(device, name);
}

}  // namespace mt::parallel
