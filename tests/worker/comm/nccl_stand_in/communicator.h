// One rank's communicator. Calls are closures on queues; whatever the queues, they run in the order
// in which the host made them, since each waits for the one before. A rank that is gone is noticed
// by nobody: its peers' calls wait until their own communicator is aborted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/worker/comm/nccl_stand_in/knobs.h"
#include "tests/worker/comm/nccl_stand_in/queue.h"
#include "tests/worker/comm/nccl_stand_in/room.h"

namespace mt::comm::stand_in {

enum class Operation : uint64_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

struct Collective {
  Header header;
  const void* in = nullptr;
  void* out = nullptr;
};

// One side of a message.
struct Message {
  bool is_send = false;
  int peer = -1;
  void* data = nullptr;  // a send only reads it
  size_t bytes = 0;
};

// Enqueue and Error may be called by any thread, as may Abort, once.
class Communicator {
 public:
  Communicator(int num_ranks, int rank, const Knobs& knobs);
  // Blocks until all ranks have come, without an end.
  NcclResult Join(const NcclUniqueId& id);

  // Puts a call on the queue. Messages of one call progress together. The first message from one
  // rank to another blocks the caller until both have come, as NCCL connects them then.
  NcclResult Enqueue(const Queue& queue, const Collective& call);
  NcclResult Enqueue(const Queue& queue, const std::vector<Message>& messages);

  // The error behind the calls.
  NcclResult Error();
  // Blocks until all calls are done.
  void Drain();
  // Ends the calls that run, those that still will and those that connect, and blocks until the
  // last has left its queue.
  void Abort();

  int num_ranks() const { return num_ranks_; }

 private:
  // False, also below: aborted.
  using Body = std::function<bool()>;
  // A message under way.
  struct Transfer {
    Message message;
    uint64_t number = 0;  // on its edge, from 1 on
    size_t done_bytes = 0;
    bool begun = false;
    bool done = false;
  };

  NcclResult Connect(const std::vector<Message>& messages);
  NcclResult Put(const Queue& queue, Body body);
  void Run(int64_t number, const Body& body);
  bool WaitUntil(const std::function<bool()>& done);
  bool WaitForAll(std::atomic<uint64_t> Seat::*counter, uint64_t value);
  bool Hang() {
    return WaitUntil([] { return false; });
  }

  // Writes `bytes` of `data` to the own slot, meets all others, lets `read` look at their slots.
  bool Meet(const Header& header, const void* data, size_t bytes,
            const std::function<void()>& read);
  bool RunCollective(const Collective& call);
  bool AllReduce(const Collective& call);
  bool ReduceScatter(const Collective& call);
  bool AllGather(const Collective& call);
  bool Broadcast(const Collective& call);
  // Adds what lies at an offset of all slots.
  void Reduce(const Header& header, size_t offset, size_t bytes, void* out);

  bool RunMessages(const std::vector<Message>& messages);
  bool Step(Transfer* transfer);
  bool StepSend(Transfer* transfer);
  bool StepRecv(Transfer* transfer);

  const int num_ranks_;
  const int rank_;
  const Knobs knobs_;
  RoomMapping room_;
  // Of the calls, which run one after the other.
  uint64_t num_rounds_ = 0;
  std::vector<uint64_t> num_sends_, num_recvs_;  // begun, by peer
  std::vector<uint64_t> num_received_;           // by peer

  std::atomic<bool> aborted_ = false;
  std::mutex mu_;
  std::condition_variable left_;
  int64_t num_calls_ = 0;  // enqueued
  int64_t num_left_ = 0;   // that left their queues
  int num_connecting_ = 0;
  std::atomic<int64_t> num_finished_ = 0;  // whose turn is over
};

// The size in bytes of an element.
size_t SizeOf(NcclType type);

}  // namespace mt::comm::stand_in
