// A queue of communication beside the compute stream. Its calls run in the order in which they were
// posted, each behind what its caller's stream held by then, and streams wait for single calls. On
// a device that enqueues (a GPU) the lane is a stream, and events order both; on the CPU, where a
// collective blocks, it is a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/core/device.h"

namespace mt::parallel {

// Posted to and awaited by one thread; status() and busy() by any.
class Lane {
 public:
  // Communicates and computes on the given stream, which is the lane's.
  using Call = std::function<Status(kernels::Stream&)>;
  // A call's number in the order of posting, from 1 on.
  using Ticket = int64_t;

  // `name`: of a thread, at most 15 characters. `window`: a ticket may be awaited until this many
  // more were posted. The device must outlive the lane.
  static std::unique_ptr<Lane> Create(kernels::Device* device, const std::string& name, int window);
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Queues a call behind all that `caller` was given so far. Returns without waiting for the device
  // or for peers. After the first call that fails no other runs.
  virtual Ticket Post(kernels::Stream& caller, Call call) = 0;
  // What `consumer` is given from now on finds the call done: on the CPU this blocks until it is.
  // Returns status().
  virtual Status Await(kernels::Stream& consumer, Ticket ticket) = 0;
  // OK, or the status of the first call that failed.
  virtual Status status() const = 0;
  // True while a call is queued or running whose end somebody has to bring about (Abort of its
  // group); never on a device that enqueues.
  virtual bool busy() const = 0;

 protected:
  Lane() = default;
};

}  // namespace mt::parallel
