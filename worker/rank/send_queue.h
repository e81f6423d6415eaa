// Messages queued for the agent, in order. Steps, job reports and finished commands get an
// ascending number and are kept until the coordinator has them on disk, because the agent, its
// stream and the coordinator may go and come back; all others are kept only until they are written.
// The queue is bounded: beyond the limit every second step of the older half is dropped. Messages
// are stored serialised, which takes a quarter of the memory of objects. Not thread-safe; guarded
// by the channel's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::rank {

class SendQueue {
 public:
  static constexpr size_t kLimit = 65536;  // messages

  explicit SendQueue(size_t limit = kLimit) : limit_(limit) {}

  // Appends a message and numbers it (RankMessage.seq, JobReport.rank_seq) if it is of a kept kind.
  // Returns the number of steps that were dropped to make room.
  int64_t Push(megatrain::v1::RankMessage message);
  // Copies the oldest message not yet written on the current stream to *out; false if there is
  // none.
  bool Next(megatrain::v1::RankMessage* out);
  // Confirms that the message returned by the last Next was written.
  void Written();
  // Starts a new stream: everything kept will be sent again.
  void Rewind();
  // Discards the kept messages up to this number, which the coordinator has stored.
  void Acked(int64_t seq);

  bool nothing_to_write() const { return next_ == entries_.size(); }
  // True if nothing is to be written or to be acknowledged.
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }

  // The unacknowledged messages, and a fault that was not written, in order: RankMessages, each
  // preceded by its length as a varint.
  std::string Serialize() const;

 private:
  struct Entry {
    std::string bytes;
    uint64_t id = 0;
    int64_t seq = 0;  // 0: discarded once written
    bool is_step = false;
    bool is_fault = false;
  };
  // Drops every second step among the first `count` entries; returns how many.
  int64_t Thin(size_t count);

  const size_t limit_;
  std::deque<Entry> entries_;
  size_t next_ = 0;  // index of the first entry not yet written on this stream
  uint64_t last_id_ = 0;
  uint64_t in_flight_id_ = 0;  // being written; 0: none
  int64_t last_seq_ = 0;
  int64_t handed_seq_ = 0;  // highest number that Next has returned; no later one can have arrived
};

}  // namespace mt::rank
